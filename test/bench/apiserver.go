package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiServer is as much of an API server as the plugin's program needs, over
// HTTP: objects of any kind, watches from a version or with the initial list,
// selectors. It checks nothing, and answers in JSON.
type apiServer struct {
	http *httptest.Server

	// mu protects what follows.
	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	// log is everything that ever happened; the version of an event is its
	// number.
	log []change
	// more is closed, and replaced, when something happens.
	more chan struct{}
	// writes counts the changes that came over HTTP, by resource.
	writes map[string]int
}

// change is one event.
type change struct {
	path, kind string
	object     *unstructured.Unstructured
}

func startAPIServer() *apiServer {
	s := &apiServer{objects: map[string]*unstructured.Unstructured{}, more: make(chan struct{}), writes: map[string]int{}}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.StartTLS()
	return s
}

func (s *apiServer) stop() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// writeKubeconfig tells a client how to reach the server.
func (s *apiServer) writeKubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{
		Server:                   s.http.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw}),
	}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench"}
	config.CurrentContext = "bench"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// put adds an object at a path like /api/v1/nodes.
func (s *apiServer) put(collection string, object runtime.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(collection, "ADDED", &unstructured.Unstructured{Object: content})
	return nil
}

// written is how often slices were changed over HTTP.
func (s *apiServer) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes["resourceslices"]
}

// count is how many objects are in a collection.
func (s *apiServer) count(collection string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list(collection, metav1.ListOptions{}))
}

// change takes in an event. The caller holds the lock.
func (s *apiServer) change(collection, kind string, object *unstructured.Unstructured) {
	object.SetResourceVersion(strconv.Itoa(len(s.log) + 1))
	path := pathOf(collection, object.GetNamespace(), object.GetName())
	if kind == "DELETED" {
		delete(s.objects, path)
	} else {
		s.objects[path] = object
	}
	s.log = append(s.log, change{path: path, kind: kind, object: object})
	close(s.more)
	s.more = make(chan struct{})
}

// pathOf is where an object of a collection is found; the collection's path may
// have the namespace in it already.
func pathOf(collection, namespace, name string) string {
	if i := strings.LastIndex(collection, "/"); namespace != "" && !strings.Contains(collection, "/namespaces/") {
		collection = collection[:i] + "/namespaces/" + namespace + collection[i:]
	}
	return collection + "/" + name
}

// within reports whether an object's path is of a collection, which may span all
// namespaces.
func within(path, collection string) bool {
	parent := path[:strings.LastIndex(path, "/")]
	if parent == collection {
		return true
	}
	before, after, ok := strings.Cut(parent, "/namespaces/")
	_, resource, _ := strings.Cut(after, "/")
	return ok && before+"/"+resource == collection
}

// list is what is in a collection. The caller holds the lock.
func (s *apiServer) list(collection string, o metav1.ListOptions) []*unstructured.Unstructured {
	found := []*unstructured.Unstructured{}
	for path, object := range s.objects {
		if within(path, collection) && selects(o, object) {
			found = append(found, object)
		}
	}
	return found
}

func selects(o metav1.ListOptions, object *unstructured.Unstructured) bool {
	if l, err := labels.Parse(o.LabelSelector); err != nil || !l.Matches(labels.Set(object.GetLabels())) {
		return false
	}
	f, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return false
	}
	for _, r := range f.Requirements() {
		value, _, _ := unstructured.NestedString(object.Object, strings.Split(r.Field, ".")...)
		if value != r.Value {
			return false
		}
	}
	return true
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o metav1.ListOptions
	if err := metav1.Convert_url_Values_To_v1_ListOptions(new(r.URL.Query()), &o, nil); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if r.Method == http.MethodGet && o.Watch {
		s.watch(w, r, o)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.get(w, r.URL.Path, o)
		return
	}
	s.write(w, r)
}

func (s *apiServer) get(w http.ResponseWriter, path string, o metav1.ListOptions) {
	if object, ok := s.objects[path]; ok {
		answer(w, http.StatusOK, object)
		return
	}
	if name := path[strings.LastIndex(path, "/")+1:]; s.isObject(path) {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, name+" not found")
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"apiVersion": apiVersionOf(path), "kind": kindOf(path) + "List", "items": s.list(path, o),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(len(s.log))},
	})
}

// collections are the resources that the plugin asks for.
var collections = []string{"nodes", "pods", "resourceslices", "resourceclaims", "events"}

func (s *apiServer) isObject(path string) bool {
	for _, resource := range collections {
		if strings.HasSuffix(path, "/"+resource) {
			return false
		}
	}
	return true
}

// apiVersionOf is v1 for /api/v1/… and group/v1 for /apis/group/v1/….
func apiVersionOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if parts[0] == "api" {
		return parts[1]
	}
	return parts[1] + "/" + parts[2]
}

// write changes an object. The caller holds the lock.
func (s *apiServer) write(w http.ResponseWriter, r *http.Request) {
	object, err := read(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	path := r.URL.Path
	if r.URL.Query().Has("dryRun") {
		answer(w, http.StatusOK, object)
		return
	}
	for _, resource := range collections {
		if strings.Contains(path+"/", "/"+resource+"/") {
			s.writes[resource]++
		}
	}
	collection := path[:strings.LastIndex(path, "/")]
	before, known := s.objects[path]
	switch {
	case r.Method == http.MethodPost:
		if object.GetName() == "" {
			object.SetName(fmt.Sprintf("%s%05d", object.GetGenerateName(), len(s.log)))
		}
		object.SetUID(types.UID(fmt.Sprintf("8f0c0ed8-30ab-4a4b-9a4b-%012d", len(s.log))))
		object.SetCreationTimestamp(metav1.Now())
		s.change(path, "ADDED", object)
		answer(w, http.StatusCreated, object)
	case !known:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, path+" not found")
	case r.Method == http.MethodDelete:
		s.change(collection, "DELETED", before.DeepCopy())
		answer(w, http.StatusOK, before)
	case r.Method == http.MethodPut:
		s.change(collection, "MODIFIED", object)
		answer(w, http.StatusOK, object)
	default:
		// A patch, of an event that happens again: nobody reads it.
		answer(w, http.StatusOK, before)
	}
}

// read reads the object that a client sends, which is in protobuf mostly.
func read(r *http.Request) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		return object, nil
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	if object.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
		return nil, err
	}
	object.SetGroupVersionKind(*kind)
	return object, nil
}

// watch sends what happens to a collection from a version on.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, o metav1.ListOptions) {
	w.Header().Set("Content-Type", "application/json")
	stream := http.NewResponseController(w)
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	s.mu.Lock()
	next := len(s.log)
	if version, err := strconv.Atoi(o.ResourceVersion); err == nil && version > 0 {
		next = version
	}
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		next = len(s.log)
		for _, object := range s.list(r.URL.Path, o) {
			send("ADDED", object)
		}
		send("BOOKMARK", map[string]any{
			"apiVersion": apiVersionOf(r.URL.Path), "kind": kindOf(r.URL.Path),
			"metadata": map[string]any{
				"resourceVersion": strconv.Itoa(next),
				"annotations":     map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		})
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		events, more := s.log[next:], s.more
		next = len(s.log)
		s.mu.Unlock()
		for _, e := range events {
			if within(e.path, r.URL.Path) && selects(o, e.object) {
				send(e.kind, e.object)
			}
		}
		if stream.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// kindOf is the kind of the objects of a collection.
func kindOf(collection string) string {
	return map[string]string{
		"nodes": "Node", "pods": "Pod", "resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim", "events": "Event",
	}[collection[strings.LastIndex(collection, "/")+1:]]
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
