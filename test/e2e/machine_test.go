package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// Where things lie on a node.
const (
	simulateRoot = "/run/tranche/simulate"
	faultsFile   = simulateRoot + "/faults.yaml"
	ledgerDir    = "/var/lib/kubelet/plugins/" + names.DriverName + "/claims"
	cdiDir       = "/run/cdi" // /var/run is a link to /run
)

// machine is the simulated hardware of a node as it is now, in the simulator's
// own words.
type machine struct {
	GPUs []simulatedGPU `json:"gpus"`
}

type simulatedGPU struct {
	PCI     string `json:"pci"`
	MIGMode bool   `json:"migMode"`
	// ComputeMode is NVML's number of it.
	ComputeMode int                 `json:"computeMode"`
	Instances   []simulatedInstance `json:"instances"`
	// MemoryLimits are by the folder of the control group, in bytes.
	MemoryLimits map[string]simulatedLimit `json:"memoryLimits"`
}

type simulatedLimit struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

type simulatedInstance struct {
	ID      int `json:"id"`
	Start   int `json:"start"`
	Compute []struct {
		ID int `json:"id"`
	} `json:"compute"`
}

// machine reads what the simulated GPUs of NVIDIA's on a node are.
func (s *suite) machine(node string) machine {
	s.t.Helper()
	var m machine
	// A node without GPUs of NVIDIA's has no such file.
	if text := s.readOnDisk(node, simulateRoot+"/state.json"); text != "" {
		require.NoError(s.t, json.Unmarshal([]byte(text), &m))
	}
	return m
}

// instances counts the GPU instances of all GPUs.
func (m machine) instances() int {
	n := 0
	for _, g := range m.GPUs {
		n += len(g.Instances)
	}
	return n
}

func (m machine) String() string {
	var b strings.Builder
	for n, g := range m.GPUs {
		for _, i := range g.Instances {
			fmt.Fprintf(&b, "GPU %d (%s) has GPU instance %d with %d compute instances\n", n, g.PCI, i.ID, len(i.Compute))
		}
	}
	return b.String()
}

// commonNodes are the device nodes that every container with a GPU gets.
var commonNodes = []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}

// nodesOf lists the device nodes that a container with an allocated device
// should see, from what the simulator says.
func (s *suite) nodesOf(node string, device resourceapi.DeviceRequestAllocationResult) []string {
	s.t.Helper()
	m := s.machine(node)
	index := slices.IndexFunc(m.GPUs, func(c simulatedGPU) bool { return gpu.NameOf(c.PCI) == gpu.OfDevice(device.Device) })
	require.GreaterOrEqual(s.t, index, 0, "device %s", device.Device)
	g := m.GPUs[index]
	nodes := append(slices.Clone(commonNodes), fmt.Sprintf("/dev/nvidia%d", index))
	// Of a share: what is shared.
	base := strings.TrimSuffix(strings.TrimSuffix(device.Device, "-memory-share"), "-fraction-share")
	if base != gpu.NameOf(g.PCI) {
		start, err := strconv.Atoi(base[strings.LastIndex(base, "-")+1:])
		require.NoError(s.t, err, device.Device)
		n := slices.IndexFunc(g.Instances, func(i simulatedInstance) bool { return i.Start == start })
		require.GreaterOrEqual(s.t, n, 0, "%s is not cut: %s", device.Device, m)
		instance := g.Instances[n]
		require.Len(s.t, instance.Compute, 1)
		folder := fmt.Sprintf("%s/proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", simulateRoot, index, instance.ID)
		nodes = append(nodes,
			s.capability(node, path.Join(folder, "access")),
			s.capability(node, fmt.Sprintf("%s/ci%d/access", folder, instance.Compute[0].ID)))
	}
	slices.Sort(nodes)
	return nodes
}

var minorLine = regexp.MustCompile(`DeviceFileMinor: (\d+)`)

func (s *suite) capability(node, file string) string {
	s.t.Helper()
	m := minorLine.FindStringSubmatch(s.readOnDisk(node, file))
	require.NotNil(s.t, m, file)
	return "/dev/nvidia-caps/nvidia-cap" + m[1]
}

// seen lists the device nodes that a container sees.
func (s *suite) seen(pod *corev1.Pod, container string) []string {
	s.t.Helper()
	if s.lab != nil {
		return s.lab.seen(s.t, pod, container, "/dev/nvidia")
	}
	return s.seenWith(pod, container, "nvidia")
}

// requireSees checks that a container sees the device nodes of a device and no
// others, and that its environment names it.
func (s *suite) requireSees(pod *corev1.Pod, container string, device resourceapi.DeviceRequestAllocationResult, what string) {
	s.t.Helper()
	require.Equal(s.t, s.nodesOf(pod.Spec.NodeName, device), s.seen(pod, container))
	env := s.env(pod, container)
	assert.Regexp(s.t, `^`+regexp.QuoteMeta(what)+` (MIG|GPU)-[0-9a-f-]{36}$`, requireOneDevice(s.t, env, device))
	assert.Equal(s.t, "void", env["NVIDIA_VISIBLE_DEVICES"])
}

// requireOneDevice checks that an environment names a device and no other, and returns what it
// says of it.
func requireOneDevice(t *testing.T, env map[string]string, device resourceapi.DeviceRequestAllocationResult) string {
	t.Helper()
	named := devicesIn(env)
	require.Equal(t, []string{"TRANCHE_DEVICE_" + strings.ToUpper(strings.ReplaceAll(device.Device, "-", "_"))}, named)
	return env[named[0]]
}

// devicesIn returns the names of the variables that name devices.
func devicesIn(env map[string]string) (named []string) {
	for name := range env {
		if strings.HasPrefix(name, "TRANCHE_DEVICE_") {
			named = append(named, name)
		}
	}
	return named
}

// setFaults makes the simulated GPUs of node-a fail from now on.
func (s *suite) setFaults(faults nvdriver.Faults) {
	s.t.Helper()
	s.setFaultsOn(nodeA, faults)
}

// setFaultsOn is setFaults for any node.
func (s *suite) setFaultsOn(node string, faults nvdriver.Faults) {
	s.t.Helper()
	data, err := yaml.Marshal(faults)
	require.NoError(s.t, err)
	_, err = nvdriver.ParseFaults(data)
	require.NoError(s.t, err)
	s.replaceOnDisk(node, faultsFile, string(data))
}

func (s *suite) clearFaults(node string) {
	s.t.Helper()
	if err := os.Remove(s.onDisk(node, faultsFile)); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(s.t, err)
	}
}

// requireNothingLeft waits until no node has an instance, a record, a CDI file or
// an MPS daemon. A pod is gone only when its claims are released, so what is left then
// is there to stay.
func (s *suite) requireNothingLeft() {
	s.t.Helper()
	for _, node := range s.nodes {
		s.eventually("nothing is left on "+node, func() (bool, string) {
			left := s.leftOn(node)
			return left == "", left
		})
	}
}

// requireInstances checks how many GPU instances node-a has, each with its
// compute instance, and that the ledger knows as many claims.
func (s *suite) requireInstances(count int) {
	s.t.Helper()
	m := s.machine(nodeA)
	require.Equal(s.t, count, m.instances(), m.String())
	for _, g := range m.GPUs {
		for _, i := range g.Instances {
			require.Len(s.t, i.Compute, 1, m.String())
		}
	}
	require.Len(s.t, s.records(nodeA), count)
}

// records lists the UIDs of the claims in a node's ledger.
func (s *suite) records(node string) []string {
	s.t.Helper()
	var uids []string
	for _, file := range s.listOnDisk(node, ledgerDir) {
		if uid, ok := strings.CutSuffix(file.Name(), ".json"); ok {
			uids = append(uids, uid)
		}
	}
	return uids
}
