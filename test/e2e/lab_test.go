package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/controller/claimtemplates"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/lab"
)

// Most tests need a cluster, but neither a container nor the kubelet itself. They run in a
// laboratory: a cluster in this process (test/lab). The others run on real clusters
// (test/e2e.sh). So does every test if the environment names a cluster.

// listVariable makes the tests say where they run, and end.
const listVariable = "TRANCHE_E2E_LIST"

// laboratory is the cluster in this process.
type laboratory struct {
	cluster        *lab.Cluster
	nodes          map[string]*lab.Node
	stopController func() error
	// metrics are those of the controller that runs.
	metrics *prometheus.Registry
}

// usualMachines are the inventories of the nodes that most tests have.
var usualMachines = map[string]string{nodeA: inventory("h100x8"), nodeB: inventory("l4x4"), nodeC: inventory("mi300x8")}

// inventory is the file of one that the chart brings.
func inventory(name string) string {
	return repository + "/pkg/publish/models/inventories/" + name + ".yaml"
}

// laboratories are those that no test uses, and nil for each that may be started: as many as tests
// run at once (go test -parallel).
var laboratories chan *laboratory

// start gives a test a laboratory for itself and a namespace of its own, and sees to it that the test ends
// with clean nodes. If the environment names a cluster, the test runs there.
func start(t *testing.T) *suite {
	t.Helper()
	listed(t, "anywhere")
	if os.Getenv(clusterVariable) != "" {
		return startOnCluster(t)
	}
	assets := labAssets(t)
	t.Parallel()
	l := <-laboratories
	t.Cleanup(func() {
		// What a failed test has left must not make others fail.
		if t.Failed() && l != nil {
			assert.NoError(t, l.stop())
			l = nil
		}
		laboratories <- l
	})
	if l == nil {
		var err error
		l, err = startLab(assets, usualMachines)
		require.NoError(t, err)
	}
	return begin(t, l, l.cluster.Dir, nodeA, nodeB, nodeC)
}

// startWith gives a test a laboratory of its own: with machines (inventories by node) that others do
// not have, or with feature gates turned off.
func startWith(t *testing.T, machines map[string]string, gatesOff ...string) *suite {
	t.Helper()
	listed(t, "in a lab")
	assets := labAssets(t)
	t.Parallel()
	other := <-laboratories // no more tests at once than with those
	t.Cleanup(func() { laboratories <- other })
	l, err := startLab(assets, machines, gatesOff...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.stop()) })
	return begin(t, l, l.cluster.Dir, slices.Sorted(maps.Keys(machines))...)
}

// labAssets is the folder of the programs of Kubernetes.
func labAssets(t *testing.T) string {
	t.Helper()
	assets := os.Getenv(lab.AssetsVariable)
	if assets == "" {
		t.Skip(lab.AssetsVariable + " names no folder with the programs of Kubernetes: make test-unit does")
	}
	return assets
}

// onlyAtNight is for tests that take half a minute and that smaller tests make unlikely to fail, and for
// all but one of several tests with a laboratory of their own: `make nightly` runs them.
func onlyAtNight(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make nightly runs this test")
	}
}

// listed ends a test that is only asked where it runs.
func listed(t *testing.T, where string) {
	t.Helper()
	if os.Getenv(listVariable) != "" {
		name := t.Name()
		if !strings.HasPrefix(name, "TestDemos/") && !strings.HasPrefix(name, "TestDemoReadmes/") { // each is a test of its own
			name, _, _ = strings.Cut(name, "/")
		}
		fmt.Printf("runs %s: %s\n", where, name)
		t.SkipNow()
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // there is memory, and computing is what takes time
	parallel, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	if err != nil {
		panic(err)
	}
	laboratories = make(chan *laboratory, parallel)
	for range parallel {
		laboratories <- nil
	}
	code := m.Run()
	for range parallel {
		if l := <-laboratories; l != nil {
			if err := l.stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

func startLab(assets string, machines map[string]string, gatesOff ...string) (*laboratory, error) {
	ctx := context.Background()
	values := []string{"--values", repository + "/demo/values.yaml"}
	for _, file := range settingsFiles() {
		values = append(values, "--values", file)
	}
	c, err := lab.Start(ctx, lab.Options{Assets: assets, Chart: chart, Values: append(values, "--values", "values.yaml"), GatesOff: gatesOff})
	if err != nil {
		return nil, err
	}
	l := &laboratory{cluster: c, nodes: map[string]*lab.Node{}}
	if err := l.startController(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	for name, file := range machines {
		n, err := c.AddNode(ctx, name, file)
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		l.nodes[name] = n
		n.Options.MemoryModes = true
		n.Options.ExtendedResources = map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu", gpu.AMD: "amd.com/gpu"}
		n.Options.MIGExtendedResources = true
		if err := n.StartPlugin(); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return l, nil
}

// startController starts the controller with the values of the release, and changes of them.
func (l *laboratory) startController(ctx context.Context, changes ...func(*lab.ControllerOptions)) (err error) {
	o := lab.DefaultController()
	l.metrics = prometheus.NewRegistry()
	o.Registry = l.metrics
	o.Translate = claimtemplates.Projects
	o.Explain.After, o.Explain.PerSecond = time.Second, 50
	o.Defragment.After, o.Defragment.MaxPods, o.Defragment.PerHour = time.Second, 2, 10
	for _, change := range changes {
		change(&o)
	}
	l.stopController, err = l.cluster.StartController(ctx, o)
	return err
}

func (l *laboratory) restartController(ctx context.Context, changes ...func(*lab.ControllerOptions)) error {
	return errors.Join(l.stopController(), l.startController(ctx, changes...))
}

// controllerMetrics are the metrics of the controller, of all its replicas.
func (s *suite) controllerMetrics() string {
	s.t.Helper()
	var text strings.Builder
	if s.lab != nil {
		families, err := s.lab.metrics.Gather()
		require.NoError(s.t, err)
		for _, family := range families {
			_, err := expfmt.MetricFamilyToText(&text, family)
			require.NoError(s.t, err)
		}
		return text.String()
	}
	pods := s.client.CoreV1().Pods(pluginNamespace)
	list, err := pods.List(s.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	require.NoError(s.t, err)
	for i := range list.Items {
		metrics, err := pods.ProxyGet("http", list.Items[i].Name, "8080", "metrics", nil).DoRaw(s.ctx)
		require.NoError(s.t, err)
		text.Write(metrics)
	}
	return text.String()
}

func (l *laboratory) stop() error {
	errs := []error{l.stopController()}
	for _, n := range l.nodes {
		errs = append(errs, n.Stop())
	}
	return errors.Join(append(errs, l.cluster.Stop())...)
}

// get asks the plugin of a node over HTTP.
func (l *laboratory) get(ctx context.Context, node, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.nodes[node].Options.HTTPAddress+"/"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// seen lists the device nodes of a container whose paths have one of the prefixes.
func (l *laboratory) seen(t *testing.T, pod *corev1.Pod, container string, prefixes ...string) (paths []string) {
	t.Helper()
	spec, err := l.nodes[pod.Spec.NodeName].Container(pod, container)
	require.NoError(t, err)
	for _, d := range spec.Linux.Devices {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(d.Path, prefix) }) {
			paths = append(paths, d.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// env is the environment of a container.
func (l *laboratory) env(t *testing.T, pod *corev1.Pod, container string) map[string]string {
	t.Helper()
	spec, err := l.nodes[pod.Spec.NodeName].Container(pod, container)
	require.NoError(t, err)
	env := map[string]string{}
	for _, variable := range spec.Process.Env {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	return env
}
