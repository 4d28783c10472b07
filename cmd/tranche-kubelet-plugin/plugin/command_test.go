package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command("dev")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBadFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for name, tt := range map[string]struct {
		args    []string
		message string
	}{
		"no node":       {[]string{}, "--node-name is not set, and neither is NODE_NAME in the environment"},
		"unknown flag":  {[]string{"--simulat=h100x8"}, "unknown flag: --simulat"},
		"an argument":   {[]string{"h100x8"}, `unknown command "h100x8"`},
		"shared memory": {[]string{"--node-name=a", "--mps-shared-memory-size=1k"}, "1k is less than 1Mi"},
		"no quantity":   {[]string{"--node-name=a", "--mps-shared-memory-size=much"}, "mps-shared-memory-size"},
		"resource":      {[]string{"--node-name=a", "--extended-resource=gpu"}, `"gpu" is not a vendor's resource: use nvidia.com/gpu or amd.com/gpu`},
		"managed nodes": {[]string{"--node-name=a", "--managed-nodes=a b"}, "--managed-nodes"},
		"log format":    {[]string{"--node-name=a", "--logging-format=xml"}, "logging flags"},
		"no kubeconfig": {[]string{"--node-name=a", "--kubeconfig=/does/not/exist"}, "find out how to reach the API server"},
		"report format": {[]string{"hardware", "--output=yaml"}, `--output is "yaml", it can be json`},
		"no plugin":     {[]string{"hardware", "--kubelet-dir=" + t.TempDir()}, "no plugin with GPUs is at work on this node"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tt.args...)
			require.ErrorContains(t, err, tt.message)
		})
	}
}

func TestFlagsReachTheConfig(t *testing.T) {
	t.Setenv("NODE_NAME", "node-a")
	t.Setenv("POD_UID", "uid-1")
	cmd := command("dev")
	var config Options
	cmd.Flags().VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, f.Name) })
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addFlags(set, &config)
	require.NoError(t, set.Parse([]string{
		"--remove-idle-foreign-partitions", "--installation=ns/tranche", "--extended-resource=nvidia.com/gpu", "--extended-resource=amd.com/gpu",
		"--mps-shared-memory-size=512Mi", "--managed-nodes=example.com/tranche=true", "--mig-replicas",
	}))
	assert.Equal(t, "example.com/tranche=true", config.ManagedNodes.String())
	assert.True(t, config.MIGExtendedResources)
	assert.Equal(t, "node-a", config.NodeName)
	assert.Equal(t, "uid-1", string(config.PodUID))
	assert.True(t, config.RemoveIdleForeign)
	assert.Equal(t, "ns/tranche", config.Installation)
	assert.Equal(t, map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu", gpu.AMD: "amd.com/gpu"}, config.ExtendedResources)
	assert.Equal(t, int64(512<<20), config.MPSSharedMemory)
	assert.Equal(t, "1Gi", set.Lookup("mps-shared-memory-size").DefValue)
	assert.Equal(t, "/var/lib/kubelet", config.KubeletDir)
	assert.Equal(t, 10*time.Second, config.UsageInterval)
}

func TestListDevices(t *testing.T) {
	root := t.TempDir()
	create := func(path string) string {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	create("dev/null")
	create("dev/nvidiactl") // every container of NVIDIA's runtime may have it
	var out bytes.Buffer
	require.ErrorContains(t, listDevices(&out, root), "no device node of a GPU")
	assert.Empty(t, out.String())

	want := ""
	for _, path := range []string{"dev/dri/renderD128", "dev/kfd", "dev/nvidia-caps/nvidia-cap12", "dev/nvidia3"} {
		want += create(path) + "\n"
	}
	require.NoError(t, listDevices(&out, root))
	assert.Equal(t, want, out.String())
}
