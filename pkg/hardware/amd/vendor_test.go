package amd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// A GPU with nothing but screens behind it is not ours.
func TestNoAMDGPUForUs(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/bus/pci/drivers/amdgpu"), 0o750))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/module/amdgpu"), 0o750))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/sys/kernel/random"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("x\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Vendor{HostRoot: root}.Open(ctx)
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	require.ErrorContains(t, err, "no GPU that is made for computing")
}
