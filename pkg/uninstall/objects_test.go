package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

// metadataOf shows the metadata of what two clients have, and of further objects.
func metadataOf(t *testing.T, client *fake.Clientset, ours *clientfake.Client, objects ...runtime.Object) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	all := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	kinds := map[schema.GroupVersionResource]string{
		slicesKind: "ResourceSlice", templatesKind: "ResourceClaimTemplate", podsKind: "Pod",
		gpuNodesKind: "GPUNode", profilesKind: v1beta1.ProfileKind, plansKind: "PartitionPlan", mapsKind: v1beta1.MapKind,
	}
	clientfake.React(&all.Fake, "*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource()
		kind, known := kinds[resource]
		if !known {
			return false, nil, nil
		}
		of := &client.Fake
		if resource.Group == v1beta1.GroupVersion.Group {
			of = &ours.Fake
		}
		if action.GetVerb() != "list" {
			_, err := of.Invokes(action, &metav1.Status{})
			return true, nil, err
		}
		found, err := of.Invokes(k8stesting.NewListAction(resource, resource.GroupVersion().WithKind(kind), action.GetNamespace(), metav1.ListOptions{}), nil)
		if err != nil {
			return true, nil, err
		}
		list := &metav1.List{}
		return true, list, meta.EachListItem(found, func(o runtime.Object) error {
			list.Items = append(list.Items, runtime.RawExtension{Object: meta.AsPartialObjectMetadata(o.(metav1.Object))})
			return nil
		})
	})
	return all
}

// pagedAPI has slices, and answers in pages. It notes what is asked.
func pagedAPI(t *testing.T, slices int) (metadata.Interface, *[]string) {
	t.Helper()
	asked := &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		*asked = append(*asked, fmt.Sprintf("%s %s limit %s from %q", r.Method, r.URL.Path, q.Get("limit"), q.Get("continue")))
		assert.Contains(t, r.Header.Get("Accept"), "as=PartialObjectMetadataList")
		assert.Equal(t, "spec.driver=gpu.tranche.dev", q.Get("fieldSelector"))
		limit, err := strconv.Atoi(q.Get("limit"))
		assert.NoError(t, err)
		from, _ := strconv.Atoi(q.Get("continue"))
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		for i := from; i < min(from+limit, slices); i++ {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}},
			})
		}
		if from+limit < slices {
			list.Continue = strconv.Itoa(from + limit)
		}
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	}))
	t.Cleanup(server.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
	require.NoError(t, err)
	return client, asked
}

// A large cluster's objects are read as metadata, in pages, and no further than is needed.
func TestFindReadsPagesOfMetadata(t *testing.T) {
	const path = "GET /apis/resource.k8s.io/v1/resourceslices "
	for name, test := range map[string]struct {
		slices, most, found int
		asked               []string
	}{
		"all":         {1200, 0, 1200, []string{`limit 500 from ""`, `limit 500 from "500"`, `limit 500 from "1000"`}},
		"one":         {1200, 1, 1, []string{`limit 1 from ""`}},
		"none":        {0, 1, 0, []string{`limit 1 from ""`}},
		"not as many": {3, 6, 3, []string{`limit 6 from ""`}},
	} {
		t.Run(name, func(t *testing.T) {
			api, asked := pagedAPI(t, test.slices)
			found, err := (&Config{Objects: api}).find(t.Context(), slicesKind, metav1.NamespaceAll, published, test.most)
			require.NoError(t, err)
			require.Len(t, found, test.found)
			for i := range found {
				assert.Equal(t, metav1.ObjectMeta{Name: fmt.Sprint("slice-", i)}, found[i])
			}
			for i, a := range *asked {
				assert.Equal(t, path+test.asked[i], a)
			}
			assert.Len(t, *asked, len(test.asked))
		})
	}
}

// While the plugins withdraw, it is only asked whether one slice is left, and ever more seldom.
func TestWaitingReadsOneSlice(t *testing.T) {
	client := kubefake.New(slice("node-a"), node("node-a", "Unknown"))
	api, asked := pagedAPI(t, 1200)
	c := &Config{Client: client, Ours: noDefinitions(), Objects: api, Namespace: "gpus", DaemonSet: "x", Deadline: impatient, Look: impatient / 10, Out: io.Discard}
	err := c.removePlugins(t.Context())
	require.ErrorIs(t, err, ErrUnfinished)
	require.ErrorContains(t, err, "some nodes have not withdrawn their GPUs")
	whole := 0
	for _, a := range *asked {
		if strings.Contains(a, "limit 500") {
			whole++
		}
	}
	assert.Equal(t, 3, whole, "once, to say which nodes they are of")
	assert.LessOrEqual(t, len(*asked), 3+11)
	for _, action := range client.Actions() {
		assert.NotEqual(t, "resourceslices", action.GetResource().Resource)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.removePlugins(ctx), context.Canceled)
}
