package session

import (
	"errors"
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestCallErrorSaysWhatToDo(t *testing.T) {
	for ret, remedy := range map[nvml.Return]string{
		nvml.ERROR_NO_PERMISSION:           "CAP_SYS_ADMIN",
		nvml.ERROR_RESET_REQUIRED:          "nvidia-smi --gpu-reset",
		nvml.ERROR_GPU_IS_LOST:             "dmesg",
		nvml.ERROR_IN_USE:                  "process",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "version",
	} {
		err := fmt.Errorf("create: %w", &CallError{Subject: "GPU 0000:c1:00.0", Call: "DeviceSetMigMode", Return: ret})
		assert.ErrorContains(t, err, "GPU 0000:c1:00.0: NVML call DeviceSetMigMode: "+ret.Error())
		assert.ErrorContains(t, err, remedy)
		assert.ErrorIs(t, err, ret)
		assert.Equal(t, ret == nvml.ERROR_IN_USE, errors.Is(err, gpu.ErrInUse))
	}
	assert.Equal(t, "NVML: NVML call Init: "+nvml.ERROR_UNKNOWN.Error(),
		(&CallError{Subject: "NVML", Call: "Init", Return: nvml.ERROR_UNKNOWN}).Error(), "no remedy known, none invented")
}
