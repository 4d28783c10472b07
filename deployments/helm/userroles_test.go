package helm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// aggregated are the roles that a role becomes a part of, by its labels.
func aggregated(role *rbacv1.ClusterRole) (into []string) {
	for key := range role.Labels {
		if name, ok := strings.CutPrefix(key, "rbac.authorization.k8s.io/aggregate-to-"); ok {
			into = append(into, name)
		}
	}
	return into
}

// templates are those of the pods that stay.
func templates(objects []runtime.Object) (pods []corev1.PodTemplateSpec) {
	for _, o := range all[*appsv1.DaemonSet](objects) {
		pods = append(pods, o.Spec.Template)
	}
	for _, o := range all[*appsv1.Deployment](objects) {
		pods = append(pods, o.Spec.Template)
	}
	return pods
}

// TestUserRoles: reading is for everybody who may read the cluster; what drains nodes is
// part of no role that an administrator has granted before.
func TestUserRoles(t *testing.T) {
	objects := decode(t, render(t, chart))
	view, admin := named[*rbacv1.ClusterRole](t, objects, "tranche-view"), named[*rbacv1.ClusterRole](t, objects, "tranche-profile-admin")
	assert.Equal(t, []string{"view"}, aggregated(view))
	assert.Empty(t, aggregated(admin))
	for _, rule := range view.Rules {
		assert.Equal(t, []string{"get", "list", "watch"}, rule.Verbs)
	}
	for _, rule := range admin.Rules {
		assert.Equal(t, []string{"tranche.dev"}, rule.APIGroups)
		assert.NotContains(t, rule.Resources, "gpunodes/status")
		if slices.Contains(rule.Resources, "gpunodes") {
			assert.Equal(t, []string{"get", "list", "watch", "update", "patch"}, rule.Verbs, "plugins make them, and they go with their nodes")
		}
	}
	for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
		assert.NotContains(t, []string{view.Name, admin.Name, "tranche-user"}, binding.RoleRef.Name, "administrators decide on bindings")
	}
	bound := decode(t, render(t, chart, "--set-json", `userRoles.subjects=[{"kind":"ServiceAccount","name":"a","namespace":"b"}]`))
	users := named[*rbacv1.ClusterRoleBinding](t, bound, "tranche-user")
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tranche-user"}, users.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a", Namespace: "b"}}, users.Subjects)

	only := decode(t, render(t, chart, "--set", "userRoles.aggregateToView=false"))
	assert.Empty(t, aggregated(named[*rbacv1.ClusterRole](t, only, "tranche-view")))
	for _, role := range all[*rbacv1.ClusterRole](decode(t, render(t, chart, "--set", "userRoles.enabled=false"))) {
		assert.NotContains(t, []string{view.Name, admin.Name, "tranche-user", "tranche-user-namespace", "tranche-user-nodes"}, role.Name)
	}
}

// TestTenantRoles: what a tenant may read outside namespaces names no other tenant, and no right is there
// that kubectl tranche why does not use.
func TestTenantRoles(t *testing.T) {
	objects := decode(t, render(t, chart))
	user, inNamespace := named[*rbacv1.ClusterRole](t, objects, "tranche-user"), named[*rbacv1.ClusterRole](t, objects, "tranche-user-namespace")
	nodes := named[*rbacv1.ClusterRole](t, objects, "tranche-user-nodes")
	assert.Empty(t, aggregated(nodes), "the status of nodes names images and volumes of other tenants")
	const read, ofOwners = "cmd/kubectl-tranche/whyread.go", "cmd/kubectl-tranche/whyowner.go"
	for _, test := range []struct {
		role  *rbacv1.ClusterRole
		calls []call
	}{
		{user, []call{
			{"resource.k8s.io/deviceclasses get list", read, "&in.Classes, &in.Unread"},
			{"resource.k8s.io/resourceslices get list", read, "&in.Slices, &in.Unread"},
			{"resource.k8s.io/devicetaintrules get list", read, "read.TaintRules(ctx, r)"},
			{"storage.k8s.io/storageclasses get list", read, "&in.Storage.Classes, &in.Unread"},
		}},
		{nodes, []call{{"/nodes get list", read, "&in.Nodes, &in.Unread"}}},
		{inNamespace, []call{
			{"/pods get list", read, "Pods(r.namespace).Get(ctx"},
			{"/events get list", read, "r.namespace, &in.Events"},
			{"/persistentvolumeclaims get list", read, "r.namespace, &in.Storage.Claims"},
			{"/resourcequotas get list", read, "r.namespace, &in.Quotas"},
			{"/namespaces get", read, "Namespaces().Get(ctx"},
			{"resource.k8s.io/resourceclaims get list", ofOwners, "ResourceClaims(r.namespace).Get(ctx"},
			{"resource.k8s.io/resourceclaimtemplates get list", read, "r.namespace, &in.Templates"},
			{"batch/jobs get list", ofOwners, "Jobs(r.namespace).Get(ctx"},
			{"apps/replicasets get list", ofOwners, "r.namespace, &in.ReplicaSets"},
			{"apps/deployments get", ofOwners, "Deployments(r.namespace).Get(ctx"},
			{"apps/statefulsets get", ofOwners, "StatefulSets(r.namespace).Get(ctx"},
			{"jobset.x-k8s.io/jobsets get", ofOwners, "/apis/jobset.x-k8s.io/"},
			{"kueue.x-k8s.io/workloads get list", ofOwners, "why.KueueGroup"},
		}},
	} {
		if test.role != nodes {
			assert.Equal(t, []string{"view"}, aggregated(test.role))
		}
		assert.Equal(t, neededFor(t, test.calls), given(test.role.Rules, ""), test.role.Name)
	}
	usage := []call{
		{"/pods list", "pkg/usage/scrape.go", "Pods(r.Namespace).List(ctx, o)"},
		{"/pods/proxy get", "pkg/usage/scrape.go", `Resource("pods").SubResource("proxy")`},
	}
	assert.Equal(t, neededFor(t, usage), given(named[*rbacv1.Role](t, objects, "tranche-usage").Rules, ""))
	alone := decode(t, render(t, chart, "--set", "userRoles.aggregateUser=false"))
	for _, name := range []string{user.Name, inNamespace.Name} {
		assert.Empty(t, aggregated(named[*rbacv1.ClusterRole](t, alone, name)))
	}
	trusting := decode(t, render(t, chart, "--set", "userRoles.aggregateNodes=true"))
	assert.Equal(t, []string{"view"}, aggregated(named[*rbacv1.ClusterRole](t, trusting, nodes.Name)))
}

// TestNetworkPolicy: it is for all pods of the chart, and lets in who reads the metrics
// only.
func TestNetworkPolicy(t *testing.T) {
	assert.Empty(t, all[*networkingv1.NetworkPolicy](decode(t, render(t, chart))))
	policy := func(args ...string) (*networkingv1.NetworkPolicy, []runtime.Object) {
		objects := decode(t, render(t, chart, append(args, "--set", "networkPolicy.enabled=true")...))
		return one[*networkingv1.NetworkPolicy](t, objects), objects
	}
	closed, objects := policy()
	assert.Empty(t, closed.Spec.Ingress)
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, closed.Spec.PolicyTypes, "the API server's address is not known")
	selector, err := metav1.LabelSelectorAsSelector(&closed.Spec.PodSelector)
	require.NoError(t, err)
	for _, pod := range templates(objects) {
		assert.True(t, selector.Matches(labels.Set(pod.Labels)), pod.Labels)
		ports := pod.Spec.Containers[0].Ports
		assert.True(t, slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == "http" }))
	}

	open, _ := policy("--set-json", `networkPolicy.metricsFrom=[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]`)
	assert.Equal(t, []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromString("http"))}},
	}}, open.Spec.Ingress)

	// The pods of the web page reach the plugins.
	web, objects := policy("--set", "webPage.enabled=true")
	require.Len(t, web.Spec.Ingress, 1)
	require.Len(t, web.Spec.Ingress[0].From, 1)
	from := web.Spec.Ingress[0].From[0]
	assert.Nil(t, from.NamespaceSelector)
	selector, err = metav1.LabelSelectorAsSelector(from.PodSelector)
	require.NoError(t, err)
	for _, pod := range templates(objects) {
		assert.Equal(t, pod.Labels["app.kubernetes.io/component"] == "web", selector.Matches(labels.Set(pod.Labels)), pod.Labels)
	}
	assert.Equal(t, open.Spec.Ingress[0].Ports, web.Spec.Ingress[0].Ports)
	both, _ := policy("--set", "webPage.enabled=true", "--set-json", `networkPolicy.webFrom=[{"podSelector":{}}]`)
	require.Len(t, both.Spec.Ingress, 2)
	assert.Equal(t, intstr.FromString("web"), *both.Spec.Ingress[1].Ports[0].Port)
}
