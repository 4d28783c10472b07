package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// What an H100 with MIG mode off answered (realdriver.md).
func TestAnswersOfARealDriver(t *testing.T) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	n := openLibrary(t, inv, memory.TempDir(t), "580.159.04")
	d := handleOf(t, n, 0)
	info := profileInfo(t, d, "1g.10gb")
	set, ret := n.EventSetCreate()
	require.Equal(t, nvml.SUCCESS, ret)
	for call, c := range map[string]struct{ want, got nvml.Return }{
		"DeviceGetHandleByIndex, as many as there are":              {nvml.ERROR_INVALID_ARGUMENT, second(n.DeviceGetHandleByIndex(len(inv.GPUs)))},
		"DeviceGetHandleByUUID, no such GPU":                        {nvml.ERROR_NOT_FOUND, second(n.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000"))},
		"DeviceGetHandleByUUID, no such partition":                  {nvml.ERROR_NOT_FOUND, second(n.DeviceGetHandleByUUID("MIG-00000000-0000-0000-0000-000000000000"))},
		"DeviceGetHandleByUUID, no UUID":                            {nvml.ERROR_NOT_FOUND, second(n.DeviceGetHandleByUUID("nonsense"))},
		"DeviceGetHandleByPciBusId, no such GPU":                    {nvml.ERROR_NOT_FOUND, second(n.DeviceGetHandleByPciBusId("0000:99:00.0"))},
		"DeviceGetAttributes of a GPU":                              {nvml.ERROR_NOT_SUPPORTED, second(d.GetAttributes())},
		"DeviceGetNumaNodeId":                                       {nvml.ERROR_NOT_SUPPORTED, second(d.GetNumaNodeId())},
		"DeviceGetGpuInstanceId of a GPU":                           {nvml.ERROR_INVALID_ARGUMENT, second(d.GetGpuInstanceId())},
		"DeviceGetComputeInstanceId of a GPU":                       {nvml.ERROR_INVALID_ARGUMENT, second(d.GetComputeInstanceId())},
		"DeviceGetGpuInstanceById":                                  {nvml.ERROR_NOT_FOUND, second(d.GetGpuInstanceById(1))},
		"DeviceGetMigDeviceHandleByIndex":                           {nvml.ERROR_NOT_FOUND, second(d.GetMigDeviceHandleByIndex(0))},
		"DeviceGetMigDeviceHandleByIndex, beyond":                   {nvml.ERROR_NOT_FOUND, second(d.GetMigDeviceHandleByIndex(99))},
		"DeviceGetMaxMigDeviceCount":                                {nvml.SUCCESS, second(d.GetMaxMigDeviceCount())},
		"DeviceGetGpuInstanceProfileInfo, not for this GPU":         {nvml.ERROR_NOT_SUPPORTED, second(d.GetGpuInstanceProfileInfo(5))},
		"DeviceGetGpuInstanceProfileInfo, the last that R580 knows": {nvml.ERROR_NOT_SUPPORTED, second(d.GetGpuInstanceProfileInfo(16))},
		"DeviceGetGpuInstanceProfileInfo, beyond":                   {nvml.ERROR_INVALID_ARGUMENT, second(d.GetGpuInstanceProfileInfo(17))},
		"DeviceGetGpuInstances":                                     {nvml.SUCCESS, second(d.GetGpuInstances(&info))},
		"DeviceGetGpuInstances, no such profile":                    {nvml.ERROR_INVALID_ARGUMENT, second(d.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: 77, InstanceCount: 1}))},
		"EventSetWait for nothing":                                  {nvml.ERROR_TIMEOUT, second(set.Wait(1))},
		"DeviceRegisterEvents":                                      {nvml.SUCCESS, d.RegisterEvents(nvml.EventTypeXidCriticalError, set)},
		"DeviceRegisterEvents, also of kinds that it does not have": {nvml.ERROR_NOT_SUPPORTED, d.RegisterEvents(1<<40, set)},
	} {
		assert.Equal(t, c.want, c.got, call)
	}
	left, ret := d.GetGpuInstanceRemainingCapacity(&info)
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, 7, left)
	types, _ := d.GetSupportedEventTypes()
	assert.EqualValues(t, 0xff9f, types)
	uuid, _ := d.GetUUID()
	byUUID, _ := n.DeviceGetHandleByUUID(uuid)
	assert.Equal(t, d, byUUID, "one handle for a GPU")
	assert.Equal(t, nvml.SUCCESS, n.Shutdown())
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, n.Shutdown())
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, second(n.DeviceGetCount()))
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, second(n.EventSetCreate()))
}
