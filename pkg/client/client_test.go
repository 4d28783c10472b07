package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// asked is a request as a server got it.
type asked struct{ method, path, query, kind, body, agent string }

// server answers each path with a piece of JSON, and remembers what it was asked.
type server struct {
	*httptest.Server
	lock  sync.Mutex // of asked
	asked []asked
}

func newServer(t *testing.T, answers map[string]string) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.lock.Lock()
		s.asked = append(s.asked, asked{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type"), string(body), r.UserAgent()})
		s.lock.Unlock()
		key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/apis/tranche.dev/v1beta1")
		if r.URL.Query().Get("watch") != "" {
			key = "WATCH" + strings.TrimPrefix(key, "GET")
		}
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[key]
		if !ok {
			status := apierrors.NewNotFound(v1beta1.GroupVersion.WithResource("x").GroupResource(), key).Status()
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(status)
			return
		}
		_, _ = io.WriteString(w, answer)
		if strings.HasPrefix(key, "WATCH") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) requests() []asked {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]asked(nil), s.asked...)
}

func (s *server) client(t *testing.T) *Client {
	// Of a program that speaks Protobuf to kinds that have it.
	config := &rest.Config{Host: s.URL, UserAgent: "tester/1", ContentConfig: rest.ContentConfig{
		ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf"}}
	c, err := New(config)
	require.NoError(t, err)
	assert.Equal(t, "application/vnd.kubernetes.protobuf", config.ContentType, "the caller's stays")
	assert.Nil(t, config.GroupVersion)
	return c
}

const (
	nodeA = `{"apiVersion":"tranche.dev/v1beta1","kind":"GPUNode","metadata":{"name":"node-a","resourceVersion":"7"},
		"spec":{"profileName":"cpx"},"status":{"state":"Draining","added":"later","switch":{"id":"1","from":{"source":"None","hash":"0"},
		"to":{"profileName":"cpx","source":"Spec","hash":"1","rules":[{"xcp":{"computePartition":"CPX"}}]},"policy":{},"attempt":1,
		"startTime":"2026-01-01T10:00:00.123456Z","stateChangeTime":"2026-01-01T10:00:01.000000Z"}}}`
	profile = `{"apiVersion":"tranche.dev/v1beta1","kind":"PartitionProfile","metadata":{"name":"cpx"},
		"spec":{"rules":[{"xcp":{"computePartition":"CPX"}}]}}`
)

func list(kind string, items ...string) string {
	return `{"apiVersion":"tranche.dev/v1beta1","kind":"` + kind + `List","metadata":{"resourceVersion":"9","continue":"more"},"items":[` +
		strings.Join(items, ",") + `]}`
}

func TestReads(t *testing.T) {
	s := newServer(t, map[string]string{
		"GET /gpunodes/node-a":   nodeA,
		"GET /gpunodes":          list("GPUNode", nodeA),
		"GET /partitionprofiles": list("PartitionProfile", profile),
		"GET /partitionplans":    list("PartitionPlan"),
	})
	c := s.client(t)
	node, err := c.GPUNodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, v1beta1.Draining, node.Status.State)
	assert.JSONEq(t, `[{"xcp":{"computePartition":"CPX"}}]`, string(node.Status.Switch.To.Rules.Raw))
	assert.Equal(t, 123456000, node.Status.Switch.StartTime.Nanosecond())

	nodes, err := c.GPUNodes().List(t.Context(), metav1.ListOptions{Limit: 5, Continue: "from"})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 1)
	assert.Equal(t, node.Status, nodes.Items[0].Status)
	assert.Equal(t, "more", nodes.Continue)

	profiles, err := c.PartitionProfiles().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Equal(t, "cpx", profiles.Items[0].Name)
	plans, err := c.PartitionPlans().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Equal(t, "9", plans.ResourceVersion)

	requests := s.requests()
	assert.Equal(t, "/apis/tranche.dev/v1beta1/gpunodes/node-a", requests[0].path)
	assert.Equal(t, "continue=from&limit=5", requests[1].query)
}

func TestWrites(t *testing.T) {
	s := newServer(t, map[string]string{
		"POST /gpunodes":                nodeA,
		"PUT /gpunodes/node-a":          nodeA,
		"PUT /gpunodes/node-a/status":   nodeA,
		"PATCH /gpunodes/node-a/status": nodeA,
		"DELETE /gpunodes/node-a":       `{"apiVersion":"v1","kind":"Status","status":"Success"}`,
	})
	nodes := s.client(t).GPUNodes()
	node := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: v1beta1.GPUNodeSpec{ProfileName: "cpx"}}
	made, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "7", made.ResourceVersion)
	_, err = nodes.Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = nodes.Patch(t.Context(), "node-a", types.MergePatchType, []byte(`{"status":{"node":null}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	require.NoError(t, nodes.Delete(t.Context(), "node-a", metav1.DeleteOptions{}))

	requests := s.requests()
	require.Len(t, requests, 5)
	var sent v1beta1.GPUNode
	require.NoError(t, json.Unmarshal([]byte(requests[0].body), &sent))
	assert.Equal(t, metav1.TypeMeta{APIVersion: "tranche.dev/v1beta1", Kind: "GPUNode"}, sent.TypeMeta, "the encoder knows its kind")
	for _, r := range []asked{requests[0], requests[1], requests[2]} {
		assert.Equal(t, "application/json", r.kind)
	}
	assert.Equal(t, asked{"PATCH", "/apis/tranche.dev/v1beta1/gpunodes/node-a/status", "", "application/merge-patch+json", `{"status":{"node":null}}`, "tester/1"}, requests[3])
}

func TestClusterWithoutTheKind(t *testing.T) {
	c := newServer(t, nil).client(t)
	_, err := c.GPUNodes().List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = c.PartitionProfiles().Get(t.Context(), "x", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestDefaultUserAgent(t *testing.T) {
	s := newServer(t, map[string]string{"GET /gpunodes/node-a": nodeA})
	c, err := New(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	_, err = c.GPUNodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, rest.DefaultKubernetesUserAgent(), s.requests()[0].agent)
}

func TestNoServer(t *testing.T) {
	_, err := New(&rest.Config{Host: "http://[broken"})
	require.ErrorContains(t, err, "client for tranche.dev/v1beta1: ")
}

func TestWatch(t *testing.T) {
	s := newServer(t, map[string]string{"WATCH /gpunodes": `{"type":"ADDED","object":` + nodeA + `}
		{"type":"MODIFIED","object":` + nodeA + `}`})
	w, err := s.client(t).GPUNodes().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	for _, want := range []watch.EventType{watch.Added, watch.Modified} {
		event := <-w.ResultChan()
		assert.Equal(t, want, event.Type)
		node, ok := event.Object.(*v1beta1.GPUNode)
		require.True(t, ok, "%T", event.Object)
		assert.Equal(t, "node-a", node.Name)
	}
}

// An informer of one node asks for no other.
func TestListWatch(t *testing.T) {
	s := newServer(t, map[string]string{"WATCH /gpunodes": `{"type":"ADDED","object":` + nodeA + `}
		{"type":"BOOKMARK","object":{"apiVersion":"tranche.dev/v1beta1","kind":"GPUNode","metadata":{"resourceVersion":"9",
		"annotations":{"` + metav1.InitialEventsAnnotationKey + `":"true"}}}}`})
	ctx, stop := context.WithCancel(t.Context())
	defer stop() // before the server waits for its requests to end
	lw := ListWatch(s.client(t).GPUNodes(), "node-a")
	informer := cache.NewSharedIndexInformer(lw, &v1beta1.GPUNode{}, 0, nil)
	go informer.RunWithContext(ctx)
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	assert.Equal(t, []string{"node-a"}, informer.GetStore().ListKeys())
	for _, r := range s.requests() {
		assert.Contains(t, r.query, "fieldSelector=metadata.name%3Dnode-a")
	}
}

func TestListWatchLists(t *testing.T) {
	s := newServer(t, map[string]string{"GET /gpunodes": list("GPUNode", nodeA)})
	for name, want := range map[string]string{"": "limit=1", "node-a": "fieldSelector=metadata.name%3Dnode-a&limit=1"} {
		lw := cache.ToListerWatcherWithContext(ListWatch(s.client(t).GPUNodes(), name))
		nodes, err := lw.ListWithContext(t.Context(), metav1.ListOptions{Limit: 1})
		require.NoError(t, err)
		assert.Len(t, nodes.(*v1beta1.GPUNodeList).Items, 1)
		requests := s.requests()
		assert.Equal(t, want, requests[len(requests)-1].query)
	}
}
