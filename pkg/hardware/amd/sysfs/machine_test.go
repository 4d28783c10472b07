package sysfs_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func machineOf(t *testing.T, gpus ...amdtest.GPU) (*amdtest.Tree, *sysfs.Machine) {
	t.Helper()
	files := amdtest.NewTree(gpus...)
	return files, sysfs.New(files, klog.Logger{})
}

func gpusOf(t *testing.T, m *sysfs.Machine) []gpu.GPU {
	t.Helper()
	gpus, err := m.Inventory(t.Context())
	require.NoError(t, err)
	return gpus
}
