package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/kernelfs"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvml/libraries"
	"github.com/tranche-dev/tranche/test/simulator/nvml/symbols"
)

// patience is how long a program may take.
const patience = time.Minute

// programs is the folder with what was fetched.
func programs(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("TRANCHE_CLIENTS")
	if folder == "" {
		t.Skip("make test-clients fetches the programs")
	}
	return folder
}

// nvidia is a simulated machine with NVIDIA's driver, installed where its packages install it.
type nvidia struct {
	t        *testing.T
	programs string
	driver   string
}

func newNVIDIA(t *testing.T, branch int, version string) *nvidia {
	t.Helper()
	n := &nvidia{t: t, programs: programs(t)}
	inv, err := models.ParseInventory([]byte("driverVersion: '" + version + "'\ngpus: [{model: H100-80GB, count: 8}]\n"))
	require.NoError(t, err)
	root := t.TempDir()
	machine, err := nvdriver.New(inv, nvdriver.Options{
		Root: root, Seed: "node", Sleep: func(time.Duration) {},
		Libraries: map[string]string{"libnvidia-ml.so": libraries.Path(built, branch), "libnvidia-sandboxutils.so": libraries.SandboxPath(built)},
	})
	require.NoError(t, err)
	n.driver = machine.DriverRoot()
	return n
}

// The libraries of the branches that tests use.
var (
	built    string
	branches = []int{535, 580}
)

func TestMain(m *testing.M) {
	if os.Getenv("TRANCHE_CLIENTS") == "" {
		os.Exit(m.Run())
	}
	var err error
	if built, err = os.MkdirTemp("", "clients"); err == nil {
		err = libraries.Build(context.Background(), built, branches...)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// run runs a program that finds the driver's library as programs do: by its name.
func (n *nvidia) run(words ...string) []byte {
	n.t.Helper()
	return run(n.t, []string{
		"LD_LIBRARY_PATH=" + filepath.Join(n.driver, "usr/lib/x86_64-linux-gnu"),
		"PYTHONPATH=" + filepath.Join(n.programs, "usr/lib/python3/dist-packages"),
		"TERM=xterm",
	}, words...)
}

func run(t *testing.T, env []string, words ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Env = append(os.Environ(), env...)
	said, err := command.Output()
	if failed := (*exec.ExitError)(nil); err != nil {
		stderr := ""
		if ok := assert.ErrorAs(t, err, &failed); ok {
			stderr = string(failed.Stderr)
		}
		require.NoError(t, err, "%s\n%s", said, stderr)
	}
	return said
}

// decode reads what a program printed.
func decode[T any](t *testing.T, said []byte) (value T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(said, &value), "%s", said)
	return value
}

// The real library of 535 has exactly the functions of the simulated one.
func TestRealLibrary(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(programs(t), "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	names, err := symbols.In(found[0])
	require.NoError(t, err)
	assert.Equal(t, symbols.Of(535), slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "_") }), "beside what the linker adds")
}

func TestPynvml(t *testing.T) {
	for branch, version := range map[int]string{535: "535.261.03", 580: "580.159.04"} {
		t.Run(version, func(t *testing.T) {
			n := newNVIDIA(t, branch, version)
			walked := decode[struct {
				Driver           string
				Count            int
				Answers, Refused map[string]any
			}](t, n.run("/usr/bin/python3", "testdata/walk.py"))
			assert.Equal(t, version, walked.Driver)
			assert.Equal(t, 8, walked.Count)
			assert.Equal(t, "NVIDIA H100 80GB HBM3", walked.Answers["nvmlDeviceGetName"])
			assert.Equal(t, []any{0.0, 0.0}, walked.Answers["nvmlDeviceGetMigMode"])
			assert.Equal(t, []any{9.0, 0.0}, walked.Answers["nvmlDeviceGetCudaComputeCapability"])
			assert.Greater(t, len(walked.Answers), 20)
			for call, code := range walked.Refused {
				assert.Contains(t, []any{2.0, 3.0}, code, call) // INVALID_ARGUMENT (of ids of instances), NOT_SUPPORTED
			}

			type device struct {
				Name                       string
				Mebibytes, Multiprocessors int
			}
			made := decode[struct {
				Devices []device
				Mode    [2]int
			}](t, n.run("/usr/bin/python3", "testdata/partition.py"))
			assert.ElementsMatch(t, []device{
				{"NVIDIA H100 80GB HBM3 MIG 3g.40gb", 40448, 60}, {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984, 16},
			}, made.Devices)
			assert.Equal(t, [2]int{0, 0}, made.Mode, "as before")
		})
	}
}

func TestGpustat(t *testing.T) {
	n := newNVIDIA(t, 580, "580.159.04")
	told := decode[struct {
		Driver string `json:"driver_version"`
		GPUs   []struct {
			Name   string
			Memory int `json:"memory.total"`
		}
	}](t, n.run("/usr/bin/python3", "-c", "import gpustat; gpustat.main()", "--json"))
	assert.Equal(t, "580.159.04", told.Driver)
	require.Len(t, told.GPUs, 8)
	assert.Equal(t, "NVIDIA H100 80GB HBM3", told.GPUs[7].Name)
	assert.Equal(t, 81559, told.GPUs[7].Memory)
}

// nvtop draws on a terminal until it is stopped, so script gives it one.
func TestNvtop(t *testing.T) {
	n := newNVIDIA(t, 580, "580.159.04")
	drawn := n.run("script", "--quiet", "--return", "--command",
		"stty rows 60 cols 160; timeout --preserve-status --signal=INT 3 "+filepath.Join(n.programs, "usr/bin/nvtop"), "/dev/null")
	for _, number := range []string{"0", "7"} {
		assert.Regexp(t, regexp.MustCompile(`Device `+number+`[^D]*NVIDIA H100 80GB HBM3`), string(drawn))
	}
}

func TestContainerToolkit(t *testing.T) {
	n := newNVIDIA(t, 580, "580.159.04")
	var spec cdispecs.Spec
	require.NoError(t, yaml.Unmarshal(n.run(filepath.Join(n.programs, "usr/bin/nvidia-ctk"), "cdi", "generate",
		"--mode=nvml", "--driver-root="+n.driver, "--dev-root="+n.driver), &spec))
	require.Len(t, spec.Devices, 17, "eight by number and by UUID, and all")
	assert.Equal(t, "0", spec.Devices[0].Name)
	assert.Equal(t, "/dev/nvidia0", spec.Devices[0].ContainerEdits.DeviceNodes[0].Path)
}

// rocm-smi reads /sys, so the simulated one lies over it in a mount namespace of its own. Its release
// in Debian 12 is older than the MI300X, on which it does not start.
func TestROCmSMI(t *testing.T) {
	folder := programs(t)
	inv, err := models.ParseInventory([]byte("gpus: [{model: MI210, count: 2}]\n"))
	require.NoError(t, err)
	root := t.TempDir()
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: root, Seed: "node", Sleep: func(time.Duration) {}})
	require.NoError(t, err)
	sys := filepath.Join(root, "sys")
	require.NoError(t, os.Mkdir(sys, 0o750))
	mounted, err := kernelfs.Mount(kernel, "/sys", sys)
	require.NoError(t, err)
	defer func() { assert.NoError(t, mounted.Close()) }()
	told := decode[map[string]map[string]string](t, run(t, []string{"LD_LIBRARY_PATH=" + filepath.Join(folder, "usr/lib")},
		"unshare", "--mount", "--propagation=private", "sh", "-ec", `mount --rbind "$1" /sys; shift; exec "$@"`, "sh", sys,
		"/usr/bin/python3", filepath.Join(folder, "usr/bin/rocm-smi"), "--showid", "--showbus", "--showuniqueid", "--showmeminfo=vram", "--showtopotype", "--json"))
	for i, name := range []string{"card0", "card1"} {
		card := told[name]
		assert.Equal(t, "0x740f", card["GPU ID"])
		assert.Equal(t, inv.AMD[i].PCI, strings.ToLower(card["PCI Bus"]))
		assert.Equal(t, "68702699520", card["VRAM Total Memory (B)"])
	}
	assert.Equal(t, "PCIE", told["system"]["(Topology) Link type between DRM devices 0 and 1"])
}
