package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/clientfake"
)

// Each kind is read where the API server has it, in the namespace if it has one.
func TestSources(t *testing.T) {
	api, ours := &fake.Clientset{}, clientfake.New()
	var asked clienttesting.ListAction
	answer := func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked = action.(clienttesting.ListAction)
		return true, nil, errors.New("away")
	}
	api.AddReactor("list", "*", answer)
	clientfake.React(&ours.Fake, "list", "*", answer)
	from := Clients{api, ours}
	for resource, example := range map[string]runtime.Object{
		"gpunodes": &v1beta1.GPUNode{}, "partitionplans": &v1beta1.PartitionPlan{}, "partitionprofiles": &v1beta1.PartitionProfile{},
		"resourceslices": &resourceapi.ResourceSlice{}, "deviceclasses": &resourceapi.DeviceClass{}, "devicetaintrules": &resourceapi.DeviceTaintRule{},
		"nodes": &corev1.Node{}, "namespaces": &corev1.Namespace{}, "persistentvolumes": &corev1.PersistentVolume{}, "storageclasses": &storagev1.StorageClass{},
		"validatingadmissionpolicybindings": &admissionv1.ValidatingAdmissionPolicyBinding{},
		"team/resourceclaims":               &resourceapi.ResourceClaim{}, "team/resourceclaimtemplates": &resourceapi.ResourceClaimTemplate{},
		"team/pods": &corev1.Pod{}, "team/events": &corev1.Event{}, "team/resourcequotas": &corev1.ResourceQuota{}, "team/persistentvolumeclaims": &corev1.PersistentVolumeClaim{},
		"team/poddisruptionbudgets": &policyv1.PodDisruptionBudget{}, "team/jobs": &batchv1.Job{}, "team/replicasets": &appsv1.ReplicaSet{},
	} {
		_, err := cache.ToListerWatcherWithContext(from.ListWatch(example, "team", metav1.ListOptions{FieldSelector: "a=b"})).ListWithContext(t.Context(), metav1.ListOptions{})
		require.Error(t, err, resource)
		got := asked.GetResource().Resource
		if asked.GetNamespace() != "" {
			got = asked.GetNamespace() + "/" + got
		}
		assert.Equal(t, resource, got)
		assert.Equal(t, "a=b", asked.GetListRestrictions().Fields.String(), resource)
	}
	assert.Panics(t, func() { from.ListWatch(&corev1.Secret{}, "", metav1.ListOptions{}) })
}

// told is what the reader of a kind hears of what a source answers.
type told struct {
	// lists are the answers to one list after another; the last one ends the test.
	lists []error
	// watches says whether what was listed can be watched.
	watches error

	namespaces []string
	at         []time.Duration
	start      time.Time
	end        context.CancelFunc
}

func (f *told) ListWatch(_ runtime.Object, namespace string, _ metav1.ListOptions) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			f.namespaces, f.at = append(f.namespaces, namespace), append(f.at, time.Since(f.start))
			n := len(f.at)
			if n == len(f.lists) {
				f.end()
			}
			return pods("", "a"), f.lists[n-1]
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, f.watches },
	}
}

// When and where a kind is read again that cannot be read, and what is said until then.
func TestFollowTriesAgain(t *testing.T) {
	gr := schema.GroupResource{Resource: "pods"}
	forbidden, absent := apierrors.NewForbidden(gr, "", errors.New("no")), apierrors.NewNotFound(gr, "x")
	away := errors.New("away")
	optional := Pods
	optional.Optional = true
	const refused = "you are not allowed to list pods"
	for name, tt := range map[string]struct {
		kind       Kind
		fallback   string
		lists      []error
		watches    error
		namespaces []string
		// last is when the last list is asked for.
		last     time.Duration
		messages []string
		kept     int
	}{
		"not served":             {optional, "a", []error{absent, absent}, away, []string{"", ""}, forbiddenInterval, []string{""}, 0},
		"forbidden":              {Pods, "", []error{forbidden, forbidden}, away, []string{"", ""}, forbiddenInterval, []string{refused}, 1},
		"one namespace":          {Pods, "a", []error{forbidden, forbidden, forbidden}, away, []string{"", "a", ""}, forbiddenInterval, []string{refused}, 1},
		"list, without watch":    {Pods, "", []error{nil, nil}, forbidden, []string{"", ""}, 5 * retryInterval, []string{""}, 1},
		"list, in one namespace": {Pods, "a", []error{forbidden, nil, nil}, forbidden, []string{"", "a", "a"}, 5 * retryInterval, []string{"you are allowed to list pods in the namespace a only"}, 1},
		"of the cluster":         {Nodes, "a", []error{forbidden, forbidden}, away, []string{"", ""}, forbiddenInterval, []string{"you are not allowed to list nodes"}, 1},
		"away":                   {Pods, "", []error{away, away}, away, []string{"", ""}, retryInterval, []string{"failed to list pods: away"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				f := &told{lists: tt.lists, watches: tt.watches, start: time.Now(), end: end}
				store := cache.NewStore(cache.MetaNamespaceKeyFunc)
				require.NoError(t, store.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
				var messages []string
				Follow(ctx, f, tt.kind, tt.fallback, store, func(u text.Unread) { messages = append(messages, u.Message) })
				assert.Equal(t, tt.namespaces, f.namespaces)
				assert.Equal(t, tt.last, f.at[len(f.at)-1])
				assert.Equal(t, tt.messages, messages)
				assert.Len(t, store.List(), tt.kept)
			})
		})
	}
}

// counted is what a reader is told.
type counted struct {
	said []string
	done int
}

func (c *counted) Say(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}
func (c *counted) Done() { c.done++ }

func TestProgress(t *testing.T) {
	var c counted
	_, err := All[corev1.Pod](WithProgress(t.Context(), &c), answers(func(o metav1.ListOptions) (*corev1.PodList, error) {
		if o.Continue == "" {
			return pods("more", "a"), nil
		}
		return pods("", "b"), nil
	}), "")
	require.NoError(t, err)
	const reading = "Reading objects of the kind Pod: "
	assert.Equal(t, counted{said: []string{reading + "1 so far.", reading + "2 so far."}, done: 1}, c)
	_, err = All[corev1.Pod](WithProgress(t.Context(), nil), byNamespace{}, "")
	require.NoError(t, err)
}

// Kubernetes' own kinds are read as protobuf.
func TestNewClients(t *testing.T) {
	accepted := map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted[r.URL.Path] = r.Header.Get("Accept")
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer s.Close()
	c, err := NewClients(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	_, err = All[corev1.Node](t.Context(), c, "")
	require.Error(t, err)
	_, err = All[v1beta1.GPUNode](t.Context(), c, "")
	require.Error(t, err)
	assert.Equal(t, map[string]string{"/api/v1/nodes": "application/vnd.kubernetes.protobuf,application/json", "/apis/tranche.dev/v1beta1/gpunodes": "application/json, */*"}, accepted)
	_, err = NewClients(&rest.Config{Host: "http://a b"})
	require.ErrorContains(t, err, "client for the API server: ")
}
