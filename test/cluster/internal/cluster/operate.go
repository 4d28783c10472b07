package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

// grace is how long a process has to end by itself.
const grace = 10 * time.Second

// StopKubelet ends a node's kubelet: at once with kill, orderly otherwise. Its
// pods go on.
func (c *Cluster) StopKubelet(name string, kill bool) error {
	return c.stopProcess(name, node{name: name}.processName(kubelet), kill)
}

// StartKubelet starts a node's kubelet and waits until it works.
func (c *Cluster) StartKubelet(ctx context.Context, name string) error {
	if _, err := c.startKubelet(name); err != nil {
		return err
	}
	return c.awaitKubelet(ctx, name)
}

// RestartKubelet ends a node's kubelet, starts it and waits until it works.
func (c *Cluster) RestartKubelet(ctx context.Context, name string, kill bool) error {
	if err := c.StopKubelet(name, kill); err != nil {
		return err
	}
	return c.StartKubelet(ctx, name)
}

// RestartContainerd ends a node's containerd, starts it and waits until it answers. Containers go on.
func (c *Cluster) RestartContainerd(ctx context.Context, name string, kill bool) error {
	node, err := c.node(name)
	if err != nil {
		return err
	}
	target, err := c.machine(name)
	if err != nil {
		return err
	}
	if err := c.stopProcess(name, node.processName(containerd), kill); err != nil {
		return err
	}
	if err := startAll(target, node.containerdProcess()); err != nil {
		return err
	}
	return c.awaitContainerd(ctx, target)
}

// StopAPIServer ends the API server; etcd and all others go on.
func (c *Cluster) StopAPIServer(kill bool) error {
	return c.stopProcess(controlPlane, apiServer, kill)
}

// StartAPIServer starts the API server and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	router, err := c.machine(controlPlane)
	if err != nil {
		return err
	}
	if err := startAll(router, c.apiServerProcess()); err != nil {
		return err
	}
	api, err := c.newAPI()
	if err != nil {
		return err
	}
	return c.wait(ctx, "the API server", 6*time.Minute, api.ready)
}

// Reboot ends everything on a node as a power cut does, and starts the node
// again: what a disk holds is still there, what memory held is gone.
func (c *Cluster) Reboot(ctx context.Context, name string) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := c.node(name); err != nil {
		return err
	}
	router, err := c.machine(controlPlane)
	if err != nil {
		return err
	}
	// Not c.machine: a node that has crashed can be started this way too.
	old, err := machine.Open(c.path("machines", name))
	if err != nil {
		return fmt.Errorf("find node %s: %w", name, err)
	}
	if err := old.Stop(); err != nil {
		return err
	}
	c.say("%s is off", name)
	if err := removeCgroup(c.nodeCgroup(name)); err != nil {
		return err
	}
	boot, booted := newBootID(), time.Now()
	if err := c.startNode(ctx, router, name, boot); err != nil {
		return err
	}
	started, err := c.startKubelet(name)
	if err != nil {
		return err
	}
	api, err := c.newAPI()
	if err != nil {
		return err
	}
	if err := c.awaitNode(ctx, api, name, boot, started); err != nil {
		return err
	}
	return c.wait(ctx, "the pods of "+name, 6*time.Minute, func(ctx context.Context) error {
		return api.podsReportedSince(ctx, name, booted)
	}, started)
}

func (c *Cluster) stopProcess(name, process string, kill bool) error {
	target, err := c.machine(name)
	if err != nil {
		return err
	}
	wait := grace
	if kill {
		wait = 0
	}
	return target.StopProcess(process, wait)
}

// awaitKubelet waits until a kubelet answers, which it is asked by way of the
// API server; where that is stopped, nobody can tell.
func (c *Cluster) awaitKubelet(ctx context.Context, name string) error {
	router, err := c.machine(controlPlane)
	if err != nil {
		return err
	}
	if !isRunning(router, apiServer) {
		return nil
	}
	api, err := c.newAPI()
	if err != nil {
		return err
	}
	return c.wait(ctx, "the kubelet of "+name, 3*time.Minute, func(ctx context.Context) error {
		return api.kubeletWorks(ctx, name)
	})
}

func isRunning(target machine.Machine, process string) bool {
	processes, err := target.Processes()
	if err != nil {
		return false
	}
	for _, one := range processes {
		if one.Name == process {
			return one.Running
		}
	}
	return false
}
