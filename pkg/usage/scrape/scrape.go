package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/usage"
)

const (
	// parallel is how many plugins are read at once.
	parallel = 32
	// deadline is how long a plugin may take to answer.
	deadline = 5 * time.Second
	// longest is the longest answer, in bytes, that is read.
	longest = 16 << 20
	// portName is the name of the port that serves /metrics.
	portName = "http"
)

// Reader reads the plugins.
type Reader struct {
	Kubernetes kubernetes.Interface
	// Namespace is that of Tranche: pods of others could claim to be a plugin.
	Namespace string
	// Shows says which nodes are read, nil for all.
	Shows func(node string) bool
	// Progress is told how many nodes have been read, of how many. It may be nil.
	Progress func(done, all int)
}

// ErrNoPlugins says that there is no plugin, or none that the user may know of.
var ErrNoPlugins = errors.New("no plugin of Tranche runs in the cluster")

var errNoNamespace = errors.New("the namespace of Tranche is not known")

// Read reads all plugins. A node whose plugin does not answer has a reason in place of values.
func (r Reader) Read(ctx context.Context) ([]usage.Node, error) {
	if r.Namespace == metav1.NamespaceAll {
		return nil, errNoNamespace
	}
	pods, err := r.plugins(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // for nodes and done
	nodes := []usage.Node{}
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
	slices.SortFunc(nodes, func(a, b usage.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// plugins lists the pods of the plugins, one for each node.
func (r Reader) plugins(ctx context.Context) ([]corev1.Pod, error) {
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Kubernetes.CoreV1().Pods(r.Namespace).List(ctx, o)
	}
	nodes := map[string]corev1.Pod{}
	any := false
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{LabelSelector: cluster.PluginLabel}, func(o runtime.Object) error {
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
		return nil, fmt.Errorf("you are not allowed to list the pods of Tranche, whose metrics have the usage: ask for a role "+
			"with list on pods and get on pods/proxy in its namespace: %w", err)
	case err != nil:
		return nil, fmt.Errorf("list the pods of Tranche: %w", err)
	case !any:
		return nil, ErrNoPlugins
	}
	out := make([]corev1.Pod, 0, len(nodes))
	for _, pod := range nodes {
		out = append(out, pod)
	}
	return out, nil
}

func newer(a, b *corev1.Pod) bool { return a.CreationTimestamp.After(b.CreationTimestamp.Time) }

// node reads the plugin of a node.
func (r Reader) node(ctx context.Context, pod *corev1.Pod) []usage.Node {
	rows, err := r.rows(ctx, pod)
	switch {
	case err == nil && len(rows) > 0:
		return []usage.Node{usage.NodeOf(pod.Spec.NodeName, rows)}
	case apierrors.IsForbidden(err):
		return unknown(pod, fmt.Sprintf("you are not allowed to get pods/proxy in the namespace %s", pod.Namespace))
	case err != nil:
		return unknown(pod, err.Error())
	}
	// A node without GPUs.
	return nil
}

func unknown(pod *corev1.Pod, reason string) []usage.Node {
	return []usage.Node{{Name: pod.Spec.NodeName, Unknown: reason, GPUs: []usage.GPU{}}}
}

func (r Reader) rows(ctx context.Context, pod *corev1.Pod) ([]usage.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	request := r.Kubernetes.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").SubResource("proxy").
		Name(net.JoinSchemeNamePort("http", pod.Name, port(pod))).Suffix("metrics")
	for _, name := range usage.Metrics() {
		request = request.Param("name[]", name)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer body.Close()
	rows, err := usage.Parse(io.LimitReader(body, longest))
	if err != nil {
		return nil, fmt.Errorf("metrics of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return rows, nil
}

// port is the number of the port with the metrics.
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
