"""The only place that reads environment variables, the clock and randomness, and that puts the parts together."""

import gc
import os

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    # All that an import makes stays, and to look for garbage in it over and over takes a sixth of a cold start.
    # `handler.py` ends this when the function is imported.
    gc.disable()
