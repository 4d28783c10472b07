package apiserver

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node"
	"github.com/tranche-dev/tranche/test/simulator"
)

const (
	nodeName = "node-a"
	// patience is how long a condition may take, glance how often it is looked at.
	patience, glance = 3 * time.Minute, 50 * time.Millisecond
)

// inventory is that of the node. Its GPUs change without delays.
const inventory = `
delays: {createGPUInstance: 0s, createComputeInstance: 0s, destroyComputeInstance: 0s, destroyGPUInstance: 0s, setMigMode: 0s}
gpus:
- {model: H100-80GB, count: 2, pci: ["0000:1b:00.0", "0000:43:00.0"]}
`

// cluster is an API server with one node.
type cluster struct {
	t       *testing.T
	config  *rest.Config
	kube    kubernetes.Interface
	tranche client.Interface
	// dir has the files of the node.
	dir string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd: make test-unit does")
	}
	if os.Geteuid() != 0 {
		t.Skip("the simulated driver needs device nodes, which only root can make")
	}
	ctrl.SetLogger(logr.Discard())
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "deployments", "helm", "tranche", "files", "crds")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.Stop()) })
	c := &cluster{t: t, config: config}
	c.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c.tranche, err = client.New(config)
	require.NoError(t, err)
	// Paths of sockets are limited to 108 characters; t.TempDir has the test's name in it.
	c.dir, err = os.MkdirTemp("", "tr")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(c.dir)) })
	_, err = c.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// run runs something until stop is called, at the latest at the end of the test.
func (c *cluster) run(name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(c.t, err, "%s ended with an error", name)
		case <-time.After(patience):
			require.Fail(c.t, name+" does not end")
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// startController runs the controller.
func (c *cluster) startController(change ...func(*controller.Options)) {
	c.t.Helper()
	scheme, err := controller.NewScheme()
	require.NoError(c.t, err)
	options := controller.Options{
		MaxUnavailable: "1", Deadlines: state.DefaultDeadlines(), Registry: prometheus.NewRegistry(), Clock: &controller.ServerClock{},
	}
	for _, f := range change {
		f(&options)
	}
	config := rest.CopyConfig(c.config)
	config.Wrap(options.Clock.(*controller.ServerClock).Wrap)
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme, Cache: options.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // each test has one
	})
	require.NoError(c.t, err)
	require.NoError(c.t, controller.Setup(c.t.Context(), mgr, options))
	c.run("the controller", mgr.Start)
}

// startPlugin runs the kubelet plugin and registers it.
func (c *cluster) startPlugin() (k *kubelet, stop func()) {
	c.t.Helper()
	config := &node.Config{
		NodeName:     nodeName,
		LookInterval: 200 * time.Millisecond,
		KubeletDir:   filepath.Join(c.dir, "kubelet"),
		CDIDir:       filepath.Join(c.dir, "cdi"),
		HostRoot:     "/",
		HTTPAddress:  "127.0.0.1:0",
		MPSDir:       filepath.Join(c.dir, "mps"),
		MPSLauncher:  []string{"/bin/sh", "-c", "exit 4"}, // there is no MPS
		GPUNodes:     c.tranche.GPUNodes(),
	}
	hook := filepath.Join(c.dir, "hook")
	machine := &simulator.Machine{
		Inventory: "two", InventoryDir: filepath.Join(c.dir, "inventories"), Root: filepath.Join(c.dir, "sim"), Node: nodeName,
		NVIDIA: nvidia.Vendor{HostRoot: "/", CDIHook: hook, CDIHookPath: filepath.Join(config.DataDir(), "nvidia-cdi-hook")},
	}
	config.Machine = machine.Hardware()
	for _, dir := range []string{filepath.Join(config.KubeletDir, "plugins_registry"), machine.InventoryDir} {
		require.NoError(c.t, os.MkdirAll(dir, 0o750))
	}
	require.NoError(c.t, os.WriteFile(filepath.Join(machine.InventoryDir, "two.yaml"), []byte(inventory), 0o600))
	require.NoError(c.t, os.WriteFile(hook, []byte("#!/bin/sh\n"), 0o700)) //nolint:gosec // it is a program
	stop = c.run("the plugin", func(ctx context.Context) error { return node.Run(ctx, config, c.kube) })
	return register(c.t, config), stop
}

// slices are those that the node publishes.
func (c *cluster) slices() []*resourceapi.ResourceSlice {
	c.t.Helper()
	list, err := c.kube.ResourceV1().ResourceSlices().List(c.t.Context(), metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + names.DriverName})
	require.NoError(c.t, err)
	all := make([]*resourceapi.ResourceSlice, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all
}

// devices are the published devices that a condition holds for.
func (c *cluster) devices(is func(*resourceapi.Device) bool) int {
	n := 0
	for _, slice := range c.slices() {
		for i := range slice.Spec.Devices {
			if is(&slice.Spec.Devices[i]) {
				n++
			}
		}
	}
	return n
}

func isPartition(d *resourceapi.Device) bool { return d.Attributes["profile"].StringValue != nil }

func isTainted(d *resourceapi.Device) bool {
	for _, taint := range d.Taints {
		if taint.Key == names.TaintRepartitioning {
			return true
		}
	}
	return false
}

// await waits for a condition.
func (c *cluster) await(what string, done func() bool) {
	c.t.Helper()
	require.Eventually(c.t, done, patience, glance, what)
}
