"""A folder to put first on `sys.path`."""
