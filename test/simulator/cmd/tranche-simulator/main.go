// Command tranche-simulator is tranche-kubelet-plugin on simulated machines: it has
// the same flags and subcommands, and simulates the GPUs of the nodes for which it is
// given an inventory. On other nodes it uses the GPUs that are there.
package main

import (
	"github.com/spf13/pflag"

	"github.com/tranche-dev/tranche/cmd/tranche-kubelet-plugin/plugin"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/simulator"
)

// version is set when the program is linked.
var version = "dev"

func main() { plugin.Main(program()) }

func program() plugin.Program {
	s := &simulation{}
	return plugin.Program{
		Name:    "tranche-simulator",
		Short:   "The kubelet plugin of Tranche, a DRA driver that partitions GPUs, on simulated machines",
		Version: version,
		Flags:   s.addFlags,
		Machine: s.machine,
	}
}

// simulation says what is simulated.
type simulation struct {
	// inventory is that of every node, nodes are those of single nodes.
	inventory string
	nodes     map[string]string
	// inventories is a folder with inventories.
	inventories string
	root        string
	tools       string
}

func (s *simulation) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.inventory, "simulate", "", "inventory of simulated GPUs; empty: real GPUs")
	flags.StringToStringVar(&s.nodes, "simulate-nodes", nil, "inventories of single nodes (node-a=h100x8,node-b=l4x4); they override --simulate")
	flags.StringVar(&s.inventories, "simulate-dir", "/etc/tranche/inventories", "directory with your own inventories")
	flags.StringVar(&s.tools, "simulate-tools", "/usr/bin/simulated-nvidia-tools", "program that replaces those of NVIDIA's driver; empty: none, and no MPS")
	flags.StringVar(&s.root, "simulate-root", "/run/tranche/simulate", "directory of the simulated machine, the same path here and on the host")
}

// inventoryOf names the inventory of a node; empty: the node has real hardware.
func (s *simulation) inventoryOf(node string) string {
	if name, ok := s.nodes[node]; ok {
		return name
	}
	return s.inventory
}

// machine is the simulated machine of the node, or the real one.
func (s *simulation) machine(o *plugin.Options) hardware.Machine {
	name := s.inventoryOf(o.NodeName)
	if name == "" {
		return plugin.Host(o)
	}
	amd := o.AMD()
	amd.Manager = nil // nobody but us loads a simulated driver
	m := &simulator.Machine{
		Inventory: name, InventoryDir: s.inventories, Root: s.root, Node: o.NodeName, Tools: s.tools,
		NVIDIA: o.NVIDIA(), AMD: amd,
	}
	return m.Hardware()
}
