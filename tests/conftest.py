"""Property tests draw the same examples in every run; `--hypothesis-profile=default` explores."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
