package usage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/usage"
)

// plugin is a pod of the plugin.
func plugin(name, node string, at time.Time) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: name, CreationTimestamp: metav1.NewTime(at)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "http", ContainerPort: 9090}}}}
	return p
}

// newServer is an API server with pods, and the answers of their /metrics.
func newServer(t *testing.T, answers map[string]string, pods ...corev1.Pod) kubernetes.Interface {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			assert.Fail(t, "a plugin has led there")
		}
		if strings.HasSuffix(r.URL.Path, "/pods") {
			assert.Equal(t, "app.kubernetes.io/component=kubelet-plugin", r.URL.Query().Get("labelSelector"))
			if pods == nil {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods})
			return
		}
		assert.Len(t, r.URL.Query()["name[]"], 6, "no other metrics are asked for")
		for name, answer := range answers {
			if r.URL.Path != fmt.Sprintf("/api/v1/namespaces/tranche-system/pods/http:%s:9090/proxy/metrics", name) {
				continue
			}
			switch answer {
			case "":
				http.Error(w, "no", http.StatusForbidden)
			case "redirect":
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			}
			_, _ = w.Write([]byte(answer))
			return
		}
		http.Error(w, "no such pod", http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, WrapTransport: usage.Stay})
	require.NoError(t, err)
	return client
}

func TestRead(t *testing.T) {
	at := time.Unix(1000, 0)
	leaving := plugin("leaving", "node-a", at.Add(time.Hour))
	leaving.DeletionTimestamp = &metav1.Time{Time: at}
	leaving.Finalizers = []string{"x"}
	client := newServer(t, map[string]string{
		"a-old": "broken", "a": `tranche_memory_used_bytes{node="node-a",gpu="gpu-a",uuid="GPU-a"} 5` + "\n",
		"b": "", "d": "<html>", "e": "# nothing\n",
	}, plugin("a", "node-a", at), plugin("a-old", "node-a", at.Add(-time.Minute)), leaving, plugin("b-old", "node-b", at.Add(-time.Minute)), plugin("b", "node-b", at),
		plugin("c", "node-c", at), plugin("d", "node-d", at), plugin("e", "node-e", at), plugin("f", "node-f", at), plugin("g", "", at))
	told := 0
	nodes, err := usage.Reader{
		Kubernetes: client, Namespace: "tranche-system", Shows: func(node string) bool { return node != "node-f" },
		Progress: func(done, all int) {
			told++
			assert.Equal(t, told, done)
			assert.Equal(t, 5, all)
		},
	}.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, told)
	require.Len(t, nodes, 4, "node-e has no GPUs")
	assert.InDelta(t, 5.0, *nodes[0].MemoryUsed, 0)
	assert.Empty(t, nodes[0].Unread)
	assert.Equal(t, []text.Unread{{
		Verb: "get", Resource: "pods/proxy", Namespace: "tranche-system", Message: "you are not allowed to get pods/proxy", Denied: true,
		Consequence: "how much the node's GPUs are used is not known",
	}}, nodes[1].Unread)
	assert.Contains(t, nodes[2].Unread[0].Message, "metrics of pod tranche-system/c: ")
	assert.Contains(t, nodes[3].Unread[0].Message, "metrics of pod tranche-system/d: read metrics: ")
}

// What was read until the context ended is not all.
func TestReadEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	body, err := os.Open(os.DevNull)
	require.NoError(t, err)
	r := usage.Reader{Kubernetes: newServer(t, nil, plugin("a", "node-a", time.Now())), Namespace: "tranche-system"}
	r.Ask = func(context.Context, *corev1.Pod, url.Values) (io.ReadCloser, error) {
		end()
		return body, nil
	}
	_, err = r.Read(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, body.Close(), os.ErrClosed, "the answer is closed")
	_, err = r.Read(ctx)
	require.ErrorContains(t, err, "list the pods of Tranche: ")
}

func TestStayWithoutAnswer(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "none://api/proxy/metrics", http.NoBody)
	require.NoError(t, err)
	_, err = usage.Stay(&http.Transport{}).RoundTrip(request) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "unsupported protocol scheme")
}

func TestReadWithoutPlugins(t *testing.T) {
	_, err := usage.Reader{Kubernetes: newServer(t, nil), Namespace: "tranche-system"}.Read(t.Context())
	require.ErrorContains(t, err, "you are not allowed to list the pods of Tranche")
	_, err = usage.Reader{Kubernetes: newServer(t, nil, []corev1.Pod{}...), Namespace: "tranche-system"}.Read(t.Context())
	require.Error(t, err)
	_, err = usage.Reader{Kubernetes: newServer(t, nil, plugin("a", "", time.Now())), Namespace: "tranche-system"}.Read(t.Context())
	require.ErrorIs(t, err, usage.ErrNoPlugins)
	_, err = usage.Reader{Kubernetes: newServer(t, nil, plugin("a", "node-a", time.Now()))}.Read(t.Context())
	require.EqualError(t, err, "the namespace of Tranche is not known", "a pod of a tenant may have the label")
}

func TestReadNode(t *testing.T) {
	at := time.Unix(1000, 0)
	client := newServer(t, map[string]string{
		"a-old": "broken", "a": `tranche_memory_used_bytes{node="node-b",gpu="gpu-a"} 5` + "\n", "b": "", "d": "# nothing\n", "e": "redirect",
		"f": "# " + strings.Repeat("x", 5<<20),
	}, plugin("a", "node-a", at), plugin("a-old", "node-a", at.Add(-time.Minute)), plugin("b", "node-b", at), plugin("c", "node-c", at),
		plugin("d", "node-d", at), plugin("e", "node-e", at), plugin("f", "node-f", at))
	r := usage.Reader{Kubernetes: client, Namespace: "tranche-system"}
	node, err := r.Node(t.Context(), "node-a")
	require.NoError(t, err)
	assert.Equal(t, "node-a", node.Name, "whatever the plugin says")
	assert.InDelta(t, 5.0, *node.MemoryUsed, 0)
	for name, says := range map[string]string{
		"node-b": "you are not allowed to get pods/proxy", "node-c": "metrics of pod tranche-system/c: ", "node-d": usage.ErrNothing.Error(),
		"node-e": "metrics of pod tranche-system/e: ", "node-f": "too large", "node-x": usage.ErrNoPlugin.Error(),
	} {
		_, err := r.Node(t.Context(), name)
		require.ErrorContains(t, err, says, name)
	}
	r.Kubernetes = newServer(t, nil)
	_, err = r.Node(t.Context(), "node-a")
	require.ErrorContains(t, err, "you are not allowed to list the pods of Tranche")
	r.Namespace = ""
	_, err = r.Node(t.Context(), "node-a")
	require.EqualError(t, err, "the namespace of Tranche is not known")
}
