package sysfs

import (
	"fmt"
	"path"
	"slices"
	"strconv"
)

// topologyTries is how often a topology that changes under our eyes is read.
const topologyTries = 20

// Topology is KFD's GPU nodes at one moment.
type Topology struct {
	// Generation is KFD's own number of the state. Every node that comes or goes
	// changes it.
	Generation string
	Nodes      []Node
}

// ReadTopology reads all nodes, again if they change meanwhile.
func ReadTopology(t *Task) (*Topology, error) {
	for range topologyTries {
		before, err := Generation(t)
		if Absent(err) {
			return &Topology{}, nil // amdgpu without KFD, as for graphics alone
		}
		if err != nil {
			return nil, err
		}
		nodes, err := readNodes(t)
		if err != nil {
			return nil, err
		}
		after, err := Generation(t)
		if err != nil {
			return nil, err
		}
		if before == after {
			return &Topology{Generation: after, Nodes: nodes}, nil
		}
	}
	return nil, fmt.Errorf("%s: KFD's topology changes faster than it can be read", t.Subject())
}

// Generation changes with every node that comes or goes (kfd_topology_add_device
// and kfd_topology_remove_device in Linux' kfd_topology.c). It counts from the load of
// the driver on, which is told by the folder's inode.
func Generation(t *Task) (string, error) {
	count, err := t.Read(path.Join(TopologyDir, "generation_id"))
	if err != nil {
		return "", err
	}
	info, err := t.Stat(TopologyDir)
	return fmt.Sprintf("%s/%d", count, info.Inode), err
}

func readNodes(t *Task) ([]Node, error) {
	names, err := t.List(NodesDir)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, name := range names {
		number, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		n, ok, err := ReadNode(t, number)
		if Absent(err) {
			continue // it went while we looked; the generation tells
		}
		if err != nil {
			return nil, err
		}
		if ok {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return a.Number - b.Number })
	return nodes, nil
}
