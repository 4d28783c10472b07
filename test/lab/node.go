package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/cmd/tranche-kubelet-plugin/plugin"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/node"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/simulator"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// lookInterval is how often a plugin looks at its GPUs; on a real node, every 5 s. The plugins of all
// nodes of all clusters of the process share its CPU time.
const lookInterval = 500 * time.Millisecond

// Where things lie on a node, below its folder.
const (
	kubeletDir  = "/var/lib/kubelet"
	cdiDir      = "/var/run/cdi"
	mpsDir      = "/run/tranche/mps"
	simulateDir = "/run/tranche/simulate"
)

// Node is one node of the cluster, with the kubelet and the plugin.
type Node struct {
	Name string
	// Options are those of the plugin, Inventory has the machine's GPUs. Changes take effect when
	// the plugin is started.
	Options   *plugin.Options
	Inventory string

	cluster *Cluster
	kubelet *kubelet
	plugin  *running
}

// AddNode adds a node with the simulated GPUs of an inventory's file, which change without delay, and
// the labels that kubelets give nodes. The plugin is not started.
func (c *Cluster) AddNode(ctx context.Context, name, inventory string) (*Node, error) {
	n := &Node{Name: name, cluster: c}
	if socket := n.Path(kubeletDir, "plugins_registry", names.DriverName+"-reg.sock"); len(socket) > 107 {
		return nil, fmt.Errorf("the path of a socket, %s, has more than 107 bytes: set TMPDIR to a shorter path", socket)
	}
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	o.Status = corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("250"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Lab", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}},
	}
	o.Status.Capacity = o.Status.Allocatable
	made, err := c.Core.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	// The API server has tainted it as not ready. On a real cluster, a controller removes that.
	made.Spec.Taints = nil
	if _, err := c.Core.CoreV1().Nodes().Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	address, err := controlplane.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	if n.Inventory, err = n.withoutDelays(inventory); err != nil {
		return nil, err
	}
	n.Options = &plugin.Options{
		Config: node.Config{
			NodeName: name, LookInterval: lookInterval, GPUResources: true,
			KubeletDir: n.Path(kubeletDir), CDIDir: n.Path(cdiDir), MPSDir: n.Path(mpsDir), HostRoot: "/",
			HTTPAddress: address,
			MPSLauncher: []string{"/bin/false"}, // there is no MPS
		},
		CDIHook: n.Path("nvidia-cdi-hook"),
	}
	if err := os.MkdirAll(n.Path(kubeletDir, "plugins_registry"), 0o750); err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.Options.CDIHook, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is a program
		return nil, err
	}
	n.kubelet = startKubelet(n) //nolint:contextcheck // it ends when the node is stopped
	return n, nil
}

// withoutDelays writes the inventory of a file with GPUs that change at once, and returns the path.
func (n *Node) withoutDelays(inventory string) (string, error) {
	text, err := os.ReadFile(inventory)
	if err != nil {
		return "", err
	}
	machine := map[string]any{}
	if err := yaml.Unmarshal(text, &machine); err != nil {
		return "", err
	}
	none := func(of ...string) map[string]string {
		delays := map[string]string{}
		for _, key := range of {
			delays[key] = "0s"
		}
		return delays
	}
	if amd, ok := machine["amd"].(map[string]any); ok {
		amd["delays"] = none("switchMode", "renderNodes", "loadDriver")
	} else {
		machine["delays"] = none("createGPUInstance", "createComputeInstance", "destroyComputeInstance", "destroyGPUInstance", "setMigMode")
	}
	if text, err = yaml.Marshal(machine); err != nil {
		return "", err
	}
	file := n.Path("inventory.yaml")
	return file, errors.Join(os.MkdirAll(n.Path(), 0o750), os.WriteFile(file, text, 0o600))
}

// Path is where a path of the node is on this machine.
func (n *Node) Path(elements ...string) string {
	return filepath.Join(append([]string{n.cluster.Dir, n.Name}, elements...)...)
}

// StartPlugin runs the plugin until StopPlugin, with the rights that the chart gives it on this
// node.
func (n *Node) StartPlugin() error {
	config := n.cluster.asPlugin(n.Name)
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ours, err := client.New(config)
	if err != nil {
		return err
	}
	o := *n.Options
	if o.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	o.GPUNodes = ours.GPUNodes()
	machine := &simulator.Machine{
		Inventory: n.Inventory, Root: n.Path(simulateDir), Node: n.Name, Library: nvdriver.LibraryForTest(n.Name),
		NVIDIA: o.NVIDIA(), AMD: o.AMD(),
	}
	o.Machine = machine.Hardware()
	n.plugin = run("the plugin of "+n.Name, func(ctx context.Context) error { return node.Run(ctx, &o.Config, kube) })
	return nil
}

// StopPlugin ends the plugin as the kubelet does when its pod is deleted. It is not an error if
// it does not run.
func (n *Node) StopPlugin() error {
	if n.plugin == nil {
		return nil
	}
	p := n.plugin
	n.plugin = nil
	return p.stop()
}

// Stop ends the plugin and the kubelet.
func (n *Node) Stop() error { return errors.Join(n.StopPlugin(), n.kubelet.stop()) }
