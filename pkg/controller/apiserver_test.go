package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// kind is one that the API server of the tests has.
type kind struct {
	group, version, resource, kind string
	object                         func() client.Object
	list                           func() client.ObjectList
}

var kinds = []kind{
	{"", "v1", "nodes", "Node", func() client.Object { return &corev1.Node{} }, func() client.ObjectList { return &corev1.NodeList{} }},
	{"", "v1", "pods", "Pod", func() client.Object { return &corev1.Pod{} }, func() client.ObjectList { return &corev1.PodList{} }},
	{"resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", func() client.Object { return &resourceapi.ResourceClaim{} }, func() client.ObjectList { return &resourceapi.ResourceClaimList{} }},
	{"resource.k8s.io", "v1", "resourceslices", "ResourceSlice", func() client.Object { return &resourceapi.ResourceSlice{} }, func() client.ObjectList { return &resourceapi.ResourceSliceList{} }},
	{"resource.k8s.io", "v1", "deviceclasses", "DeviceClass", func() client.Object { return &resourceapi.DeviceClass{} }, func() client.ObjectList { return &resourceapi.DeviceClassList{} }},
	{"tranche.dev", "v1alpha1", "gpunodes", "GPUNode", func() client.Object { return &v1alpha1.GPUNode{} }, func() client.ObjectList { return &v1alpha1.GPUNodeList{} }},
	{"tranche.dev", "v1alpha1", "partitionprofiles", "PartitionProfile", func() client.Object { return &v1alpha1.PartitionProfile{} }, func() client.ObjectList { return &v1alpha1.PartitionProfileList{} }},
	{"tranche.dev", "v1alpha1", "partitionplans", "PartitionPlan", func() client.Object { return &v1alpha1.PartitionPlan{} }, func() client.ObjectList { return &v1alpha1.PartitionPlanList{} }},
}

func (k *kind) path() string {
	if k.group == "" {
		return "/api/v1/" + k.resource
	}
	return "/apis/" + k.group + "/" + k.version + "/" + k.resource
}

func (k *kind) apiVersion() string { return strings.TrimPrefix(k.group+"/"+k.version, "/") }

// serveAPI lets a world be reached by HTTP, as far as the controller goes.
func serveAPI(t *testing.T, w *world) *rest.Config {
	mux := http.NewServeMux()
	answer := func(rw http.ResponseWriter, o any) {
		rw.Header().Set("Content-Type", "application/json")
		require.NoError(t, json.NewEncoder(rw).Encode(o))
	}
	mux.HandleFunc("/api", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	})
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range []string{"resource.k8s.io/v1", "tranche.dev/v1alpha1"} {
		group, version, _ := strings.Cut(g, "/")
		v := metav1.GroupVersionForDiscovery{GroupVersion: g, Version: version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	mux.HandleFunc("/apis", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, groups) })
	lists := map[string]*metav1.APIResourceList{}
	for i := range kinds {
		k := &kinds[i]
		dir := k.path()[:strings.LastIndex(k.path(), "/")]
		if lists[dir] == nil {
			lists[dir] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: k.apiVersion()}
		}
		lists[dir].APIResources = append(lists[dir].APIResources, metav1.APIResource{
			Name: k.resource, Kind: k.kind, Namespaced: k.kind == "Pod" || k.kind == "ResourceClaim", Verbs: metav1.Verbs{"get", "list", "watch"},
		})
		mux.HandleFunc(k.path(), func(rw http.ResponseWriter, r *http.Request) { serveKind(w, k, rw, r, answer) })
		mux.HandleFunc(k.path()+"/", func(rw http.ResponseWriter, r *http.Request) { serveObject(w, k, rw, r, answer) })
	}
	for dir, list := range lists {
		mux.HandleFunc(dir, func(rw http.ResponseWriter, _ *http.Request) {
			answer(rw, list)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.CloseClientConnections)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, QPS: -1}
}

// fail answers with an error as the API server does.
func fail(rw http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	s := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if ok := asStatus(err, &status); ok {
		s = status.Status()
	}
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(int(s.Code))
	_ = json.NewEncoder(rw).Encode(&s)
}

func asStatus(err error, status *apierrors.APIStatus) bool {
	s, ok := err.(apierrors.APIStatus) //nolint:errorlint // of the fake client, never wrapped
	*status = s
	return ok
}

// asked makes of an object what the client has asked for: all of it, or its metadata.
func (k *kind) asked(r *http.Request, o any, list bool) map[string]any {
	data, _ := json.Marshal(o)
	var m map[string]any
	_ = json.Unmarshal(data, &m)
	m["apiVersion"], m["kind"] = k.apiVersion(), k.kind
	if list {
		m["kind"] = k.kind + "List"
	}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		m["apiVersion"], m["kind"] = "meta.k8s.io/v1", "PartialObjectMetadata"
		if list {
			m["kind"] = "PartialObjectMetadataList"
		}
	}
	return m
}

func serveKind(w *world, k *kind, rw http.ResponseWriter, r *http.Request, answer func(http.ResponseWriter, any)) {
	ctx, q := r.Context(), r.URL.Query()
	if r.Method == http.MethodPost {
		o := k.object()
		if err := json.NewDecoder(r.Body).Decode(o); err != nil {
			fail(rw, err)
			return
		}
		if err := w.api.Create(ctx, o); err != nil {
			fail(rw, err)
			return
		}
		answer(rw, k.asked(r, o, false))
		return
	}
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		fail(rw, err)
		return
	}
	opts := &client.ListOptions{LabelSelector: selector}
	if q.Get("watch") == "" {
		list := k.list()
		if err := w.api.List(ctx, list, opts); err != nil {
			fail(rw, err)
			return
		}
		list.SetResourceVersion("1")
		answer(rw, k.asked(r, list, true))
		return
	}
	if q.Get("sendInitialEvents") != "" {
		fail(rw, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil))
		return
	}
	watch, err := w.api.Watch(ctx, k.list(), opts)
	if err != nil {
		fail(rw, err)
		return
	}
	defer watch.Stop()
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	flusher := rw.(http.Flusher)
	flusher.Flush()
	send := func(kind string, o any) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"type": kind, "object": k.asked(r, o, false)})
		flusher.Flush()
	}
	// The watch begins now, not at the version of the client's list: what has changed since
	// is among these.
	list := k.list()
	if err := w.api.List(ctx, list, opts); err != nil {
		return
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		send("ADDED", o)
		return nil
	})
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-watch.ResultChan():
			if o, ok := e.Object.(client.Object); !ok || !selector.Matches(labels.Set(o.GetLabels())) {
				continue
			}
			send(string(e.Type), e.Object)
		}
	}
}

func serveObject(w *world, k *kind, rw http.ResponseWriter, r *http.Request, answer func(http.ResponseWriter, any)) {
	ctx := r.Context()
	name, sub, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, k.path()+"/"), "/")
	o := k.object()
	o.SetName(name)
	var err error
	switch r.Method {
	case http.MethodGet:
		err = w.api.Get(ctx, client.ObjectKey{Name: name}, o)
	case http.MethodDelete:
		err = w.api.Delete(ctx, o)
	case http.MethodPatch:
		var body []byte
		if body, err = io.ReadAll(r.Body); err != nil {
			break
		}
		patch := client.RawPatch(types.PatchType(r.Header.Get("Content-Type")), body)
		if sub == "" {
			err = w.api.Patch(ctx, o, patch)
		} else {
			err = w.api.SubResource(sub).Patch(ctx, o, patch)
		}
	default:
		err = fmt.Errorf("the tests know no %s", r.Method)
	}
	if err != nil {
		fail(rw, err)
		return
	}
	answer(rw, k.asked(r, o, false))
}
