package amdgpu

import (
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// machine opens a built-in inventory in a folder of its own.
func machine(t *testing.T, name string) *Kernel {
	t.Helper()
	return machineIn(t, name, memory.TempDir(t))
}

func machineIn(t *testing.T, name, root string) *Kernel {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	return open(t, inv, root)
}

func parsed(t *testing.T, yaml string) *models.Inventory {
	t.Helper()
	inv, err := models.ParseInventory([]byte(yaml))
	require.NoError(t, err)
	return inv
}

// open starts a machine that takes no time for anything.
func open(t *testing.T, inv *models.Inventory, root string) *Kernel {
	t.Helper()
	k, err := New(inv, Options{Root: root, Seed: "node-a", Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	return k
}

// read is the content of a file without the end of the line.
func read(t *testing.T, k *Kernel, name string) string {
	t.Helper()
	data, err := k.ReadFile(name)
	require.NoError(t, err)
	return strings.TrimSuffix(string(data), "\n")
}

func names(t *testing.T, k *Kernel, name string) []string {
	t.Helper()
	names, err := k.ReadDir(name)
	require.NoError(t, err)
	return names
}

// of is a file of a GPU.
func of(pci, name string) string { return path.Join("/sys/bus/pci/devices", pci, name) }

func switchTo(k *Kernel, pci, mode string) error {
	return k.WriteFile(of(pci, "current_compute_partition"), []byte(mode))
}

// kfdNode is a GPU node of KFD as its files have it.
type kfdNode struct {
	number   int
	gpuID    string
	memory   int64
	property map[string]uint64
}

const kfdNodes = "/sys/class/kfd/kfd/topology/nodes"

// gpuNodes reads KFD's nodes of a GPU, or of all GPUs, by their numbers.
func gpuNodes(t *testing.T, k *Kernel, pci string) []kfdNode {
	t.Helper()
	var found []kfdNode
	for number := range names(t, k, kfdNodes) {
		dir := path.Join(kfdNodes, strconv.Itoa(number))
		n := kfdNode{number: number, gpuID: read(t, k, dir+"/gpu_id"), property: properties(t, read(t, k, dir+"/properties"))}
		if n.gpuID == "0" {
			continue
		}
		if pci != "" {
			domain, bus, device := models.ParsePCI(pci)
			place := n.property["location_id"] & 0xfff8
			if n.property["domain"] != uint64(domain) || place != uint64(bus<<8|device<<3) {
				continue
			}
		}
		n.memory = int64(properties(t, read(t, k, dir+"/mem_banks/0/properties"))["size_in_bytes"])
		found = append(found, n)
	}
	return found
}

func properties(t *testing.T, text string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		n, err := strconv.ParseUint(value, 10, 64)
		require.NoError(t, err, line)
		all[name] = n
	}
	return all
}

// values picks one property of each node.
func values(nodes []kfdNode, name string) []uint64 {
	all := make([]uint64, len(nodes))
	for i, n := range nodes {
		all[i] = n.property[name]
	}
	return all
}
