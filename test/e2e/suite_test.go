package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const (
	// clusterVariable names the folder of the cluster to test on.
	clusterVariable = "TRANCHE_E2E_CLUSTER"
	// aloneVariable names the only test that is for the cluster, if there is one.
	aloneVariable = "TRANCHE_E2E_ALONE"
	// repository is the clone's root, seen from this folder.
	repository = "../.."

	// nodeA has eight H100 (inventory h100x8), nodeB four L4 (l4x4), nodeC eight
	// MI300X (mi300x8).
	nodeA = "node-a"
	nodeB = "node-b"
	nodeC = "node-c"

	// patienceOnCluster is how long a wait lasts before the test fails. It is long
	// because the machine may be small and busy.
	patienceOnCluster = 6 * time.Minute
	patienceInLab     = 2 * time.Minute
	// glance is the longest time between two looks.
	glance = 200 * time.Millisecond
)

// suite is what a test works with.
type suite struct {
	t       *testing.T
	ctx     context.Context
	cluster string
	// lab is the cluster if it is one in this process.
	lab     *laboratory
	config  *rest.Config
	client  kubernetes.Interface
	tranche client.Interface
	// nodes are those of the cluster.
	nodes []string
	// namespace is the test's own.
	namespace string
	// firstMinors are those of the AMD node's GPUs, once they were needed.
	firstMinors map[string]int
	// resting is the profile of nodes without a label: the default of configuration files, if the chart reads some.
	resting string
}

// startOnCluster gives a test a namespace of its own, and sees to it that the test ends with clean
// nodes. It is for tests that need what only real nodes have. Without a cluster the test is
// skipped.
func startOnCluster(t *testing.T) *suite {
	t.Helper()
	listed(t, "on clusters")
	cluster := os.Getenv(clusterVariable)
	if cluster == "" {
		t.Skip(clusterVariable + " names no cluster: make test-e2e starts one and runs this test")
	}
	if alone := os.Getenv(aloneVariable); alone != "" {
		t.Skip("this cluster is for " + alone)
	}
	s := begin(t, nil, cluster, nodeA, nodeB, nodeC)
	s.useValues()
	for _, node := range s.nodes {
		s.settled(node)
	}
	return s
}

// startAtNight is startOnCluster for tests that take minutes and that smaller tests make unlikely to
// fail: `make nightly` runs them.
func startAtNight(t *testing.T) *suite {
	t.Helper()
	listed(t, "at night")
	return startOnCluster(t)
}

// startAlone is startAtNight for a cluster with other GPUs, whose release still has the values with
// which it was installed (test/e2e-test.sh).
func startAlone(t *testing.T) *suite {
	t.Helper()
	listed(t, "alone")
	if os.Getenv(aloneVariable) != t.Name() {
		t.Skip("make test-e2e starts a cluster for this test and runs it")
	}
	return begin(t, nil, os.Getenv(clusterVariable), nodeA, nodeB, nodeC)
}

// repeatedReads repeats reads that the API server could not answer, because it or etcd was starved
// of time.
type repeatedReads struct{ http.RoundTripper }

func (n repeatedReads) RoundTrip(r *http.Request) (*http.Response, error) {
	for range 10 {
		response, err := n.RoundTripper.RoundTrip(r)
		if r.Method != http.MethodGet || r.URL.Query().Has("watch") || err == nil && response.StatusCode < http.StatusInternalServerError {
			return response, err
		}
		if err == nil {
			response.Body.Close()
		}
		time.Sleep(500 * time.Millisecond)
	}
	return n.RoundTripper.RoundTrip(r)
}

// on is the suite for a part of the test.
func (s *suite) on(t *testing.T) *suite {
	part := *s
	part.t = t
	return &part
}

func begin(t *testing.T, lab *laboratory, cluster string, nodes ...string) *suite {
	t.Helper()
	s := &suite{t: t, ctx: context.Background(), lab: lab, cluster: cluster, nodes: nodes}
	var err error
	s.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(cluster, "kubeconfig"))
	require.NoError(t, err)
	s.config.QPS, s.config.Burst = 200, 400
	s.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return repeatedReads{next} })
	s.client, err = kubernetes.NewForConfig(s.config)
	require.NoError(t, err)
	s.tranche, err = client.New(s.config)
	require.NoError(t, err)
	namespace, err := s.client.CoreV1().Namespaces().Create(s.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.namespace = namespace.Name
	t.Cleanup(s.end)
	if lab == nil { // kube-controller-manager catches up after a restart
		s.eventually("the namespace has its service account", func() (bool, string) {
			_, err := s.client.CoreV1().ServiceAccounts(s.namespace).Get(s.ctx, "default", metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	s.requireNothingLeft()
	s.requireNothingAllocated()
	for _, node := range s.nodes {
		s.eventually(node+" publishes all its slices and taints no device", func() (bool, string) {
			published := s.slices(node)
			if ok, state := completePools(published); !ok {
				return false, state
			}
			tainted := taintedDevices(published)
			return len(tainted) == 0, strings.Join(tainted, " ")
		})
	}
	return s
}

// completePools reports whether slices are those of complete pools, as after a start of the plugin when the
// last one is stored.
func completePools(slices []resourceapi.ResourceSlice) (ok bool, state string) {
	stored := map[resourceapi.ResourcePool]int64{} // by name, generation and how many there should be
	for i := range slices {
		stored[slices[i].Spec.Pool]++
	}
	for pool, count := range stored {
		if count != pool.ResourceSliceCount {
			return false, fmt.Sprintf("%d slices are stored of %+v", count, pool)
		}
	}
	return len(stored) > 0, "nothing is published"
}

// taintedDevices lists those that the scheduler passes over, as for a while after a test that broke
// something.
func taintedDevices(slices []resourceapi.ResourceSlice) (names []string) {
	for i := range slices {
		for _, device := range slices[i].Spec.Devices {
			if len(device.Taints) > 0 && !gpu.IsMonitor(device.Name) {
				names = append(names, device.Name+" "+device.Taints[0].Key)
			}
		}
	}
	return names
}

// requireNothingAllocated waits until the scheduler can allocate all devices: claims of an
// earlier test are deallocated after its pods are gone.
func (s *suite) requireNothingAllocated() {
	s.t.Helper()
	s.eventually("no claim is allocated", func() (bool, string) {
		claims, err := s.client.ResourceV1().ResourceClaims("").List(s.ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		var allocated []string
		for i := range claims.Items {
			if c := &claims.Items[i]; c.Status.Allocation != nil {
				allocated = append(allocated, c.Namespace+"/"+c.Name)
			}
		}
		return len(allocated) == 0, strings.Join(allocated, " ")
	})
}

// end shows what is known about a failed test, removes what the test made and
// checks that the nodes are as they were.
func (s *suite) end() {
	if s.t.Failed() {
		s.t.Log(s.report())
	}
	for _, node := range s.nodes {
		s.clearFaults(node)
	}
	s.deletePods()
	s.requireNothingLeft()
	s.requireNoProfile()
	assert.NoError(s.t, s.client.CoreV1().Namespaces().Delete(s.ctx, s.namespace, metav1.DeleteOptions{}))
}

// report is what a person would look at first.
func (s *suite) report() string {
	var b strings.Builder
	for _, command := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"-n", s.namespace, "describe", "pods"},
		{"get", "gpunodes", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status.state} {.status.switch}{\"\\n\"}{range .status.conditions[*]}  {.type} {.status} {.reason} {.message}{\"\\n\"}{end}{end}"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", pluginNamespace, "logs", "-l", pluginLabel, "--prefix", "--tail=60"},
		{"-n", pluginNamespace, "logs", "-l", controllerLabel, "--prefix", "--tail=60"},
	} {
		out, _ := s.try("kubectl", command...)
		const most = 12000
		if len(out) > most {
			out = "… " + out[len(out)-most:]
		}
		fmt.Fprintf(&b, "\n$ kubectl %s\n%s", strings.Join(command, " "), out)
	}
	return b.String()
}

func (s *suite) patience() time.Duration {
	if s.lab != nil {
		return patienceInLab
	}
	return patienceOnCluster
}

// eventually waits until done says so. What it says beside that is what was
// last seen; it is in the failure's message.
func (s *suite) eventually(what string, done func() (bool, string)) {
	s.t.Helper()
	var seen string
	began := time.Now()
	patience := s.patience()
	pause := glance
	if s.lab != nil {
		pause /= 10
	}
	for deadline := began.Add(patience); ; pause = min(pause*3/2, glance) {
		var ok bool
		if ok, seen = done(); ok {
			s.t.Logf("%5.1fs %s", time.Since(began).Seconds(), what)
			return
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(pause)
	}
	require.FailNow(s.t, "not within "+patience.String()+": "+what, seen)
}

// try runs one of the cluster's programs (kubectl, helm) or one of ours.
func (s *suite) try(program string, args ...string) (string, error) {
	out, err := s.command(s.ctx, program, args...).CombinedOutput()
	return string(out), err
}

// command is one of the cluster's programs or one of ours. It ends with the tests, also when they are
// killed.
func (s *suite) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	path := filepath.Join(s.cluster, "bin") + ":" + absolute(filepath.Join(repository, "bin")) + ":" + os.Getenv("PATH")
	command := exec.CommandContext(ctx, "env", append([]string{"PATH=" + path, "KUBECONFIG=" + filepath.Join(s.cluster, "kubeconfig"), program}, args...)...)
	command.SysProcAttr = controlplane.EndWithThis()
	return command
}

// kubectl runs kubectl, which must succeed.
func (s *suite) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.try("kubectl", args...)
	require.NoError(s.t, err, "kubectl %s: %s", strings.Join(args, " "), out)
	return out
}

// onNode runs a command on a node, which must succeed.
func (s *suite) onNode(node string, command ...string) string {
	s.t.Helper()
	out, err := s.tryOnNode(node, command...)
	require.NoError(s.t, err, "on %s: %s: %s", node, strings.Join(command, " "), out)
	return out
}

func (s *suite) tryOnNode(node string, command ...string) (string, error) {
	return s.try("cluster", append([]string{"exec", "--dir", s.cluster, "--node", node, "--"}, command...)...)
}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

// now asks for a deletion that lasts no longer than a second.
func now() metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}
}

// While a plugin starts, the first slices of its pool are stored.
func TestCompletePools(t *testing.T) {
	of := func(generation, count int64, stored int) (slices []resourceapi.ResourceSlice) {
		for range stored {
			slices = append(slices, resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
				Pool: resourceapi.ResourcePool{Name: "node-a", Generation: generation, ResourceSliceCount: count},
			}})
		}
		return slices
	}
	for name, test := range map[string]struct {
		slices []resourceapi.ResourceSlice
		want   bool
	}{
		"nothing":      {},
		"the first":    {slices: of(1, 8, 5)},
		"all":          {slices: of(1, 8, 8), want: true},
		"an older one": {slices: append(of(2, 8, 8), of(1, 8, 1)...)},
	} {
		ok, state := completePools(test.slices)
		assert.Equal(t, test.want, ok, "%s: %s", name, state)
	}
}
