package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
)

// allowing is an API server that lets alice read some resources, all of which are empty, and refuses everything else.
func allowing(t *testing.T, resources ...string) []string {
	s := serverThat(t, func(_ *server, w http.ResponseWriter, r *http.Request) {
		info, err := requests.NewRequestInfo(r)
		require.NoError(t, err)
		switch {
		case r.URL.Path == "/version":
			send(w, map[string]string{"gitVersion": "v1.37.1"})
		case info.Resource == "selfsubjectreviews":
			send(w, authenticationv1.SelfSubjectReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
				Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "alice"}},
			})
		case info.Resource == "deviceclasses" && slices.Contains(resources, info.Resource):
			send(w, resourceapi.DeviceClassList{
				TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClassList"},
				Items: []resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{
					Name: "gpu.tranche.dev", Annotations: map[string]string{names.AnnotationSystemNamespace: "tranche-system"},
				}}},
			})
		case slices.Contains(resources, info.Resource):
			kind := map[string]string{"resourceslices": "ResourceSliceList", "resourceclaims": "ResourceClaimList", "devicetaintrules": "DeviceTaintRuleList", "pods": "PodList"}
			send(w, map[string]any{"apiVersion": strings.TrimPrefix(info.APIGroup+"/"+info.APIVersion, "/"), "kind": kind[info.Resource], "items": []any{}})
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			send(w, apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, "", nil).Status())
		}
	})
	return []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one", "-n", "team-a"}
}

// Who lacks a right is told what an administrator can run, by every command that reads.
func TestAdvice(t *testing.T) {
	const (
		user    = "kubectl create clusterrolebinding tranche-user-alice --clusterrole=tranche-user --user=alice"
		view    = "kubectl create clusterrolebinding tranche-view-alice --clusterrole=tranche-view --user=alice"
		nodes   = "kubectl create clusterrolebinding tranche-user-nodes-alice --clusterrole=tranche-user-nodes --user=alice"
		usage   = "kubectl create rolebinding tranche-usage-alice --role=tranche-usage --user=alice -n tranche-system"
		inTeam  = "kubectl create rolebinding tranche-user-namespace-alice --clusterrole=tranche-user-namespace --user=alice -n team-a"
		devices = "resourceslices deviceclasses devicetaintrules storageclasses"
	)
	for name, test := range map[string]struct {
		args  string
		may   string
		want  []string
		fails bool
	}{
		"slices":              {"", "", []string{user}, true},
		"slices, to watch":    {"--watch", "", []string{user}, true},
		"slices, for ui":      {"ui", "", []string{user}, true},
		"nothing more":        {"", devices + " resourceclaims pods", nil, false},
		"by name alone":       {"-o name", devices + " resourceclaims pods", nil, false},
		"nodes with labels":   {"-l a=b", devices, []string{nodes}, true},
		"profiles":            {"profiles", "", []string{view}, true},
		"a plan":              {"rollout status canary", "", []string{view}, true},
		"classes":             {"top pods", "", []string{user}, true},
		"plugins":             {"top pods", devices, []string{usage}, true},
		"a pod":               {"why train-7", "", []string{inTeam}, true},
		"versions":            {"version", devices, []string{usage}, false},
		"the own claims":      {"", devices, []string{inTeam}, false},
		"a job of a stranger": {"why job/a", devices, []string{inTeam}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := newCommand(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(append(strings.Fields(test.args), allowing(t, strings.Fields(test.may)...)...))
			err := cmd.ExecuteContext(t.Context())
			assert.Equal(t, test.fails, err != nil, "%v", err)
			said := out.String()
			if err != nil {
				said += err.Error()
			}
			if test.want == nil {
				assert.NotContains(t, said, "an administrator can run")
				return
			}
			_, lines, _ := strings.Cut(said, "To allow this, an administrator can run:\n  ")
			assert.Equal(t, test.want, strings.Split(strings.TrimSpace(lines), "\n  "), said)
		})
	}
}

// The path of an API server can begin with something else, as behind a proxy.
func TestRefusedBehindAProxy(t *testing.T) {
	var r refusals
	forbidding := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden}, nil
	})
	for _, path := range []string{"/api/v1/nodes", "/api/v1/namespaces/team-a/pods/train", "/apis/tranche.dev/v1beta1/gpunodes/node-a", "/version"} {
		_, err := r.wrap("/k8s/clusters/c-1/", forbidding).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/k8s/clusters/c-1"+path, nil))
		require.NoError(t, err)
	}
	_, err := r.wrap("", forbidding).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "https://example.com/apis/tranche.dev/v1beta1/partitionplans/canary", nil))
	require.NoError(t, err)
	assert.Equal(t, []refusal{{resource: "nodes"}, {resource: "pods", namespace: "team-a"}, {resource: "gpunodes.tranche.dev"}, {}, {resource: "partitionplans.tranche.dev", writes: true}}, r.all)
}

func TestBinding(t *testing.T) {
	for user, want := range map[string]string{
		"system:serviceaccount:team-a:train":   "tranche-user-team-a-train --clusterrole=tranche-user --serviceaccount=team-a:train",
		"https://sso.example.com#Bob O'Connor": `tranche-user-https-sso.example.com-bob-o-connor --clusterrole=tranche-user --user='https://sso.example.com#Bob O'\''Connor'`,
		"":                                     "tranche-user-user --clusterrole=tranche-user --user=USER",
	} {
		assert.Equal(t, "kubectl create clusterrolebinding "+want, roles[0].binding(user, ""))
	}
}

// The roles that are proposed are in the chart, and grant what they are proposed for.
func TestRolesAreThoseOfTheChart(t *testing.T) {
	rendered, err := os.ReadFile("../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	granted := map[string]bool{}
	for document := range strings.SplitSeq(string(rendered), "\n---\n") {
		var r rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &r))
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				if group := rule.APIGroups[0]; group != "" {
					resource += "." + group
				}
				writes := slices.Contains(rule.Verbs, "patch")
				for _, w := range []bool{false, writes} {
					if w {
						resource += " patch"
					}
					granted[strings.ToLower(r.Kind)+"="+r.Name+" "+resource] = true
				}
			}
		}
	}
	for _, r := range roles {
		_, role, _ := strings.Cut(r.create, " --")
		for _, resource := range r.resources {
			if resource == systemPods {
				resource = "pods"
			}
			if r.writes {
				resource += " patch"
			}
			assert.Contains(t, granted, role+" "+resource)
		}
	}
}
