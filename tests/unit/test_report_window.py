import pytest

from cluster.control.report_window import ReportWindow
from cluster.messages.report import Acceptance
from tests.unit.builders import report


def test_figures_come_from_differences() -> None:
    window = ReportWindow()
    window.add(0.0, report(tokens=1000, requests=500, acceptance=Acceptance(reached=(9, 9), accepted=(9, 0))))
    window.add(2.0, report(tokens=1060, requests=520, acceptance=Acceptance(reached=(29, 9), accepted=(19, 0))))
    assert window.accept_length() == 3.0
    assert window.goodput() == 30.0
    assert window.acceptance() == (0.5, None)


def test_old_reports_leave_the_window() -> None:
    window = ReportWindow(span_s=5.0)
    for second in range(20):
        window.add(float(second), report(tokens=0 if second < 10 else (second - 10) * 7, requests=second))
    assert window.goodput() == pytest.approx(7.0)


def test_one_report_or_no_steps_say_nothing() -> None:
    window = ReportWindow()
    window.add(0.0, report())
    assert (window.goodput(), window.accept_length()) == (None, None)


def test_a_restarted_engine_starts_over() -> None:
    window = ReportWindow()
    window.add(0.0, report(tokens=1000, requests=10))
    window.add(1.0, report(incarnation=2, tokens=5, requests=1))
    assert window.goodput() is None
