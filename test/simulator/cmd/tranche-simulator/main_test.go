package main

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/cmd/tranche-kubelet-plugin/plugin"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node"
)

func TestInventoryOfNode(t *testing.T) {
	s := &simulation{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	s.addFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, f.Name) })
	assert.Empty(t, s.inventoryOf("a"))
	require.Error(t, flags.Parse([]string{"--simulate-nodes=node-a"}))
	require.NoError(t, flags.Parse([]string{"--simulate=h100x8", "--simulate-nodes=b=l4x4,c="}))
	assert.Equal(t, "h100x8", s.inventoryOf("a"))
	assert.Equal(t, "l4x4", s.inventoryOf("b"))
	assert.Empty(t, s.inventoryOf("c"))
}

// A node with an inventory has the vendors that are in it, another one those that there are.
func TestMachineOfNode(t *testing.T) {
	s := &simulation{nodes: map[string]string{"a": "h100x8", "b": "mi300x8", "c": "none"}, root: t.TempDir()}
	vendors := func(node string) ([]gpu.Vendor, error) {
		all, err := s.machine(options(node)).Vendors()
		var names []gpu.Vendor
		for _, v := range all {
			names = append(names, v.Name())
		}
		return names, err
	}
	for name, want := range map[string][]gpu.Vendor{"a": {gpu.NVIDIA}, "b": {gpu.AMD}, "d": {gpu.NVIDIA, gpu.AMD}} {
		got, err := vendors(name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	_, err := vendors("c")
	require.ErrorContains(t, err, `unknown inventory "none"`)
}

func options(name string) *plugin.Options {
	return &plugin.Options{Config: node.Config{NodeName: name, HostRoot: "/", KubeletDir: "/var/lib/kubelet"}}
}
