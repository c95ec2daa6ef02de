"""ONNX Runtime, imported in this one place with its telemetry off, so that nothing is sent and nothing left behind.

From 1.29 on, importing it writes a device id and a database under ~/.cache/Microsoft, a file into the temporary
folder, and looks up its maker's address. Only the environment at the moment of that import stops it (older versions
ignore the variable); whoever imports onnxruntime before pixeldiff must set it themselves. Child processes inherit it.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # who sets it to 0 has asked for it

import onnxruntime as onnxruntime
