package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// parallel is how many plugins are read at once.
	parallel = 32
	// deadline is how long a plugin may take to answer.
	deadline = 5 * time.Second
	// longest is the longest answer, in bytes, that is read. A thousand shares have 2 MB.
	longest = 4 << 20
	// metricsPath is where a plugin serves them.
	metricsPath = "metrics"
	// portName is the name of the port that serves /metrics.
	portName = "http"
)

// Reader reads the plugins.
type Reader struct {
	// Kubernetes has a transport of Stay, if plugins are asked through the API server.
	Kubernetes kubernetes.Interface
	// Namespace is that of Tranche: pods of others could claim to be a plugin.
	Namespace string
	// Shows says which nodes are read, nil for all.
	Shows func(node string) bool
	// Progress is told how many nodes have been read, of how many. It may be nil.
	Progress func(done, all int)
	// Ask asks the plugin of a pod for its metrics; nil: through the API server.
	Ask func(ctx context.Context, pod *corev1.Pod, query url.Values) (io.ReadCloser, error)
}

var (
	// ErrNoPlugins says that there is no plugin, or none that the user may know of.
	ErrNoPlugins = errors.New("no plugin of Tranche runs in the cluster")
	// ErrNoPlugin says it of a node.
	ErrNoPlugin = errors.New("no plugin of Tranche runs on the node")
	// ErrNothing says that a plugin has measured nothing.
	ErrNothing = errors.New("the plugin of the node has measured no GPU yet")
)

var errNoNamespace = errors.New("the namespace of Tranche is not known")

// Read reads all plugins. A node whose plugin does not answer has a reason in place of values.
func (r Reader) Read(ctx context.Context) ([]Node, error) {
	pods, any, err := r.plugins(ctx, "")
	switch {
	case err != nil:
		return nil, err
	case !any:
		return nil, ErrNoPlugins
	}
	var mu sync.Mutex // for nodes and done
	nodes := []Node{}
	done := 0
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range pods {
		group.Go(func() error {
			read := r.node(ctx, &pods[i])
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, read...)
			if done++; r.Progress != nil {
				r.Progress(done, len(pods))
			}
			return nil
		})
	}
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// Node reads the plugin of one node.
func (r Reader) Node(ctx context.Context, name string) (Node, error) {
	r.Shows = func(node string) bool { return node == name }
	pods, _, err := r.plugins(ctx, fields.OneTermEqualSelector("spec.nodeName", name).String())
	switch {
	case err != nil:
		return Node{}, err
	case len(pods) == 0:
		return Node{}, ErrNoPlugin
	}
	rows, err := r.rows(ctx, &pods[0])
	switch {
	case err != nil:
		return Node{}, err
	case len(rows) == 0:
		return Node{}, ErrNothing
	}
	return NodeOf(name, rows), nil
}

// plugins lists the pods of the plugins, one for each node. any: there is one, of whatever node.
func (r Reader) plugins(ctx context.Context, selector string) (pods []corev1.Pod, any bool, err error) {
	if r.Namespace == metav1.NamespaceAll {
		return nil, false, errNoNamespace
	}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Kubernetes.CoreV1().Pods(r.Namespace).List(ctx, o)
	}
	nodes := map[string]corev1.Pod{}
	err = pager.New(list).EachListItem(ctx, metav1.ListOptions{LabelSelector: cluster.PluginLabel, FieldSelector: selector}, func(o runtime.Object) error {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			return nil
		}
		any = true
		// While one plugin follows another on a node, the newer one has the GPUs.
		if before, there := nodes[pod.Spec.NodeName]; r.Shows != nil && !r.Shows(pod.Spec.NodeName) || there && newer(&before, pod) {
			return nil
		}
		nodes[pod.Spec.NodeName] = *pod
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, false, fmt.Errorf("you are not allowed to list the pods of Tranche, whose metrics have the usage: ask for a role "+
			"with list on pods and get on pods/proxy in its namespace: %w", err)
	case err != nil:
		return nil, false, fmt.Errorf("list the pods of Tranche: %w", err)
	}
	return slices.Collect(maps.Values(nodes)), any, nil
}

func newer(a, b *corev1.Pod) bool { return a.CreationTimestamp.After(b.CreationTimestamp.Time) }

func (r Reader) node(ctx context.Context, pod *corev1.Pod) []Node {
	rows, err := r.rows(ctx, pod)
	switch {
	case err == nil && len(rows) > 0:
		return []Node{NodeOf(pod.Spec.NodeName, rows)}
	case err != nil:
		return []Node{Unanswered(pod.Spec.NodeName, pod.Namespace, err)}
	}
	// A node without GPUs.
	return nil
}

// Unanswered is a node whose plugin, in a namespace, cannot be read.
func Unanswered(node, namespace string, err error) Node {
	u := text.Unread{
		Verb: "get", Resource: "pods/proxy", Namespace: namespace, Message: strings.TrimSuffix(err.Error(), "."), Consequence: "how much the node's GPUs are used is not known",
	}
	if apierrors.IsForbidden(err) {
		u = u.Refused()
	}
	return Node{Name: node, GPUs: []GPU{}, Unread: []text.Unread{u}}
}

func (r Reader) rows(ctx context.Context, pod *corev1.Pod) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ask := r.Ask
	if ask == nil {
		ask = r.proxied
	}
	body, err := ask(ctx, pod, url.Values{"name[]": Metrics()})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("you are not allowed to get pods/proxy in namespace %s: %w", pod.Namespace, err)
	case err != nil:
		return nil, fmt.Errorf("metrics of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer body.Close()
	rows, err := Parse(http.MaxBytesReader(nil, body, longest))
	if err != nil {
		return nil, fmt.Errorf("metrics of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return rows, nil
}

// proxied asks through the API server.
func (r Reader) proxied(ctx context.Context, pod *corev1.Pod, query url.Values) (io.ReadCloser, error) {
	request := r.Kubernetes.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").SubResource("proxy").
		Name(net.JoinSchemeNamePort("http", pod.Name, port(pod))).Suffix(metricsPath)
	for name, values := range query {
		for _, value := range values {
			request = request.Param(name, value)
		}
	}
	return request.Stream(ctx)
}

func port(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == portName {
				return fmt.Sprint(p.ContainerPort)
			}
		}
	}
	return portName
}

// Stay is a transport to the API server with which no plugin leads elsewhere. The API server passes
// on where the pod behind pods/proxy redirects to (apimachinery, pkg/util/proxy/transport.go), and
// client-go would send its credentials there.
func Stay(to http.RoundTripper) http.RoundTripper { return stay{to} }

type stay struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s stay) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.to.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/proxy/"+metricsPath) {
		answer.Header.Del("Location")
	}
	return answer, err //nolint:wrapcheck // it is as it came
}

// WrappedRoundTripper is for client-go, which looks through transports.
func (s stay) WrappedRoundTripper() http.RoundTripper { return s.to }
