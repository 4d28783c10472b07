// Package cluster runs a Kubernetes cluster on machines made of namespaces: one
// for the control plane, one for each node. All of its state lies in one
// folder; clusters in different folders do not know of each other.
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/test/cluster/internal/build"
	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

// Cluster is a cluster in a folder, running or not.
type Cluster struct {
	dir string
	say func(format string, args ...any)
	// settings are those of the cluster that runs, or ran last.
	settings settings
}

// Options says what cluster to start.
type Options struct {
	// Nodes are the nodes' names.
	Nodes []string
	// Gates are feature gates, as in "A=true,B=false", for all components.
	Gates string
	// RuntimeConfig switches API versions on or off, as in "x.k8s.io/v1alpha1=true".
	RuntimeConfig string
	// APIOnly starts etcd and the API server, and nothing else: no node, scheduler or
	// controller manager. Whatever is in the API stays as it was written.
	APIOnly bool
}

// settings is what must be known of a cluster that runs.
type settings struct {
	Options
	// Port of 127.0.0.1 at which the host reaches the API server.
	Port int
	// Parts is the folder of the built parts.
	Parts build.Dir
}

const settingsFile = "cluster.json"

// Open returns the cluster in dir. Its progress is told by say.
func Open(dir string, say func(format string, args ...any)) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Mounts are recognized by their real path.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	cluster := &Cluster{dir: dir, say: say}
	content, err := os.ReadFile(cluster.path(settingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return cluster, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's settings: %w", err)
	}
	// A file that was cut short by a crash must not stand in the way of down.
	_ = json.Unmarshal(content, &cluster.settings)
	return cluster, nil
}

func (c *Cluster) saveSettings() error {
	content, err := json.MarshalIndent(c.settings, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(settingsFile), content, 0o644)
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *Cluster) logFile(process string) string { return c.path("logs", process+".log") }

// Kubeconfig is the file with which the host's kubectl reaches the cluster.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// machines returns all machines that were started, running or not.
func (c *Cluster) machines() []machine.Machine {
	var machines []machine.Machine
	folders, _ := filepath.Glob(c.path("machines", "*"))
	for _, folder := range folders {
		if one, err := machine.Open(folder); err == nil {
			machines = append(machines, one)
		}
	}
	return machines
}

// running returns the names of the machines that run.
func (c *Cluster) running() []string {
	var names []string
	for _, machine := range c.machines() {
		if machine.Running() {
			names = append(names, machine.Name)
		}
	}
	return names
}

// machine returns a machine that runs.
func (c *Cluster) machine(name string) (machine.Machine, error) {
	running := c.running()
	if len(running) == 0 {
		return machine.Machine{}, fmt.Errorf("no cluster runs in %s: `cluster up` starts one", c.dir)
	}
	if !slices.Contains(running, name) {
		return machine.Machine{}, fmt.Errorf("no machine %q runs in this cluster; there are: %s", name, strings.Join(running, ", "))
	}
	return machine.Open(c.path("machines", name))
}

// cgroup is the control group of the cluster's pods, below the host's root. It
// is one of this cluster's own, and so are the nodes' below it.
func (c *Cluster) cgroup() string {
	sum := sha256.Sum256([]byte(c.dir))
	return "/tranche-" + hex.EncodeToString(sum[:4])
}

func (c *Cluster) nodeCgroup(node string) string { return c.cgroup() + "/" + node }

// Exec runs a command on a node, or the control plane, with this program's
// input and output.
func (c *Cluster) Exec(ctx context.Context, node string, args []string) error {
	target, err := c.machine(node)
	if err != nil {
		return err
	}
	return target.Run(ctx, os.Stdin, os.Stdout, os.Stderr, c.env(), args...)
}

// env is the environment of programs in machines.
func (c *Cluster) env() []string {
	return []string{
		"PATH=" + c.settings.Parts.Bin() + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"CONTAINERD_NAMESPACE=k8s.io",
	}
}
