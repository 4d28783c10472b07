package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/test/cluster/internal/build"
	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

// apiPatience is how long the API server may take to start.
const apiPatience = 6 * time.Minute

// Up starts a cluster and returns when its nodes are ready. What it had
// started when something failed is ended again; logs stay.
func (c *Cluster) Up(ctx context.Context, parts build.Dir, options Options) error {
	if err := options.validate(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if running := c.running(); len(running) > 0 {
		return fmt.Errorf("a cluster is running already in %s (%s): use it with KUBECONFIG=%s, or end it with `cluster down`",
			c.dir, strings.Join(running, ", "), c.Kubeconfig())
	}
	if err := c.remove(false); err != nil {
		return fmt.Errorf("clear away the last cluster: %w", err)
	}
	c.settings = settings{Options: options, Parts: parts}
	if err := c.preflight(ctx); err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		// Also when ctx has ended: by then nobody waits any more.
		return errors.Join(err, c.remove(true))
	}
	c.say("the cluster is ready: export KUBECONFIG=%s PATH=%s:$PATH", c.Kubeconfig(), c.path("bin"))
	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	address, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	c.settings.Port = int(address.Port())
	if err := c.prepare(); err != nil {
		return err
	}
	c.say("starting etcd and the API server")
	router, err := machine.Start(ctx, c.controlPlaneSpec(), listener)
	if err != nil {
		return err
	}
	if err := startAll(router, c.etcdProcess(), c.apiServerProcess()); err != nil {
		return err
	}
	if c.settings.APIOnly {
		api, err := c.newAPI()
		if err != nil {
			return err
		}
		return c.wait(ctx, "the API server", apiPatience, api.ready, router)
	}
	c.say("starting %s with containerd", strings.Join(c.settings.Nodes, ", "))
	boots, err := c.startNodes(ctx, router)
	if err != nil {
		return err
	}
	return c.complete(ctx, router, boots)
}

// prepare writes all files that the cluster starts with.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.path("logs"), 0o755); err != nil {
		return err
	}
	if err := c.saveSettings(); err != nil {
		return err
	}
	if err := c.writeCredentials(); err != nil {
		return err
	}
	if err := c.linkTools(); err != nil {
		return err
	}
	for _, name := range c.settings.Nodes {
		node, err := c.node(name)
		if err != nil {
			return err
		}
		if err := node.writeFiles(); err != nil {
			return err
		}
	}
	return nil
}

// linkTools makes a folder to put into PATH: with what a user needs, and
// without runc and its like, which would hide the host's own.
func (c *Cluster) linkTools() error {
	if err := os.MkdirAll(c.path("bin"), 0o755); err != nil {
		return err
	}
	for _, tool := range []string{"kubectl", "helm"} {
		if err := os.Symlink(c.settings.Parts.Program(tool), c.path("bin", tool)); err != nil {
			return err
		}
	}
	return nil
}

// startNodes starts all nodes up to their containerd, at the same time, and
// returns their boots.
func (c *Cluster) startNodes(ctx context.Context, router machine.Machine) (map[string]string, error) {
	boots := map[string]string{}
	for _, name := range c.settings.Nodes {
		boots[name] = newBootID()
	}
	return boots, atOnce(c.settings.Nodes, func(name string) error { return c.startNode(ctx, router, name, boots[name]) })
}

// atOnce does something for all nodes at the same time.
func atOnce(nodes []string, do func(name string) error) error {
	var (
		failures = make([]error, len(nodes))
		wait     sync.WaitGroup
	)
	for i, name := range nodes {
		wait.Go(func() { failures[i] = do(name) })
	}
	wait.Wait()
	return errors.Join(failures...)
}

// startNode starts a node up to its containerd with the images it needs.
func (c *Cluster) startNode(ctx context.Context, router machine.Machine, name, boot string) error {
	node, err := c.node(name)
	if err != nil {
		return err
	}
	if err := makeCgroup(c.nodeCgroup(name)); err != nil {
		return err
	}
	started, err := machine.Start(ctx, node.spec(boot), nil)
	if err != nil {
		return err
	}
	if err := machine.Connect(router, started, node.link()); err != nil {
		return err
	}
	if err := startAll(started, node.containerdProcess()); err != nil {
		return err
	}
	return c.awaitContainerd(ctx, started)
}

// complete starts what needs the API server, and waits for the nodes.
func (c *Cluster) complete(ctx context.Context, router machine.Machine, boots map[string]string) error {
	api, err := c.newAPI()
	if err != nil {
		return err
	}
	if err := c.wait(ctx, "the API server", apiPatience, api.ready, router); err != nil {
		return err
	}
	c.say("the API server is ready; starting scheduler, controller manager and kubelets")
	if err := startAll(router, c.schedulerProcess(), c.controllerManagerProcess()); err != nil {
		return err
	}
	machines := []machine.Machine{router}
	for _, name := range c.settings.Nodes {
		started, err := c.startKubelet(name)
		if err != nil {
			return err
		}
		machines = append(machines, started)
	}
	for _, name := range c.settings.Nodes {
		if err := c.awaitNode(ctx, api, name, boots[name], machines...); err != nil {
			return err
		}
	}
	return c.wait(ctx, "the default service account", 3*time.Minute, api.defaultServiceAccount, machines...)
}

func (c *Cluster) startKubelet(name string) (machine.Machine, error) {
	node, err := c.node(name)
	if err != nil {
		return machine.Machine{}, err
	}
	started, err := c.machine(name)
	if err != nil {
		return started, err
	}
	return started, startAll(started, node.kubeletProcess())
}

func (c *Cluster) awaitNode(ctx context.Context, api *api, name, boot string, machines ...machine.Machine) error {
	err := c.wait(ctx, "node "+name, 6*time.Minute, func(ctx context.Context) error {
		return api.nodeReady(ctx, name, boot)
	}, machines...)
	if err == nil {
		c.say("%s is ready", name)
	}
	return err
}

func startAll(target machine.Machine, processes ...machine.Process) error {
	for _, process := range processes {
		if _, err := target.StartProcess(process); err != nil {
			return err
		}
	}
	return nil
}
