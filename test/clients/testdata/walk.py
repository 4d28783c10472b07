"""Asks everything that pynvml can ask about the first GPU and one number, and prints it as JSON."""
import ctypes
import inspect
import json

import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
answers, refused = {}, {}


def plain(value):
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, _ in value._fields_}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


for name, call in sorted(vars(pynvml).items()):
    if not name.startswith("nvmlDeviceGet") or "Handle" in name or not callable(call):
        continue
    needed = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    if len(needed) != 1:
        continue
    try:
        answers[name] = plain(call(device))
    except pynvml.NVMLError as error:
        refused[name] = error.value
print(json.dumps({
    "driver": plain(pynvml.nvmlSystemGetDriverVersion()),
    "count": pynvml.nvmlDeviceGetCount(),
    "answers": answers,
    "refused": refused,
}, default=str))
