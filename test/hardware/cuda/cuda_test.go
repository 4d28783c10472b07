package cuda_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/hardware/cuda"
	"github.com/tranche-dev/tranche/test/simulator/nvml/libraries"
)

func TestNoLibrary(t *testing.T) {
	_, err := cuda.Open("/nonexistent/libcuda.so.1")
	assert.ErrorContains(t, err, "/nonexistent/libcuda.so.1")
	_, err = cuda.Open("libm.so.6")
	assert.ErrorContains(t, err, "cuInit", "a library of something else")
}

// What a client sees, and when it is refused, with what stands in for libcuda.
func TestClient(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	require.NoError(t, libraries.BuildCUDA(t.Context(), library))
	_, err := cuda.Open(library)
	require.ErrorContains(t, err, "cuInit: CUDA answers 100 (simulated)")

	const uuid = "GPU-0011aabb-cc22-dd33-ee44-ff5566778899"
	t.Setenv("CUDA_VISIBLE_DEVICES", uuid)
	client, err := cuda.Open(library)
	require.NoError(t, err)
	assert.Equal(t, cuda.Client{GPUs: 1, UUID: uuid, Multiprocessors: 100}, *client)
	require.NoError(t, client.Compute())
	require.NoError(t, client.Allocate(15<<30))
	assert.ErrorIs(t, client.Allocate(1<<30), cuda.ErrOutOfMemory, "the context has a part of the last one")
	require.NoError(t, client.Allocate(512<<20))

	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir())
	_, err = cuda.Open(library)
	assert.ErrorContains(t, err, "CUDA_ERROR_MPS_CONNECTION_FAILED")
}
