package sysfs

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// MaxProcesses is maxProcesses.
const MaxProcesses = maxProcesses

// InTask runs f in a task on files.
func InTask[T any](ctx context.Context, files Files, f func(*Task) (T, error)) (T, error) {
	return through(ctx, &Machine{files: files}, hardware.NewGate("amdgpu", ""), f)
}

// RecentTopology is recentTopology in a task.
func (m *Machine) RecentTopology(ctx context.Context) (*Topology, error) {
	return through(ctx, m, m.host, m.recentTopology)
}

// NodeWithBanks returns a node that has a number of memory banks.
func NodeWithBanks(number, banks int) Node { return Node{Number: number, banks: banks} }

// OneHop is oneHop.
var OneHop = oneHop
