"""Reports of fitted models as HTML pages."""

from dualgap._report.page import report

__all__ = ["report"]
