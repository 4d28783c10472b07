"""Makes two partitions of the first GPU, prints the MIG devices as JSON, and takes them apart."""
import json

from pynvml import *

nvmlInit()
gpu = nvmlDeviceGetHandleByIndex(0)
nvmlDeviceSetMigMode(gpu, NVML_DEVICE_MIG_ENABLE)
made = []
for number in (NVML_GPU_INSTANCE_PROFILE_3_SLICE, NVML_GPU_INSTANCE_PROFILE_1_SLICE):
    profile = nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version=2)
    instance = nvmlDeviceCreateGpuInstance(gpu, profile.id)
    compute = nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 2 if number else 0, 0, version=1)
    made.append((instance, nvmlGpuInstanceCreateComputeInstance(instance, compute.id)))
devices = []
for index in range(nvmlDeviceGetMaxMigDeviceCount(gpu)):
    try:
        device = nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
    except NVMLError_NotFound:
        continue
    devices.append({
        "name": nvmlDeviceGetName(device),
        "mebibytes": nvmlDeviceGetMemoryInfo(device).total >> 20,
        "multiprocessors": nvmlDeviceGetAttributes(device).multiprocessorCount,
    })
for instance, compute in made:
    nvmlComputeInstanceDestroy(compute)
    nvmlGpuInstanceDestroy(instance)
nvmlDeviceSetMigMode(gpu, NVML_DEVICE_MIG_DISABLE)
print(json.dumps({"devices": devices, "mode": nvmlDeviceGetMigMode(gpu)}))
nvmlShutdown()
