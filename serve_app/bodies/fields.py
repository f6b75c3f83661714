"""Types of fields that several bodies share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from serve_app.bodies.schema import check_schema

Name = Annotated[str, Field(max_length=512)]
Text = Annotated[str, Field(min_length=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Schema = Annotated[dict[str, Any], AfterValidator(check_schema)]
