package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/web/signin"
)

// account makes a ServiceAccount and returns a token of it.
func (c *cluster) account(name string) string {
	c.t.Helper()
	accounts := c.kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	made, err := accounts.CreateToken(c.t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return made.Status.Token
}

// The rights that the chart gives the page are enough for it, and change nothing.
func TestPageHasTheRightsThatItNeeds(t *testing.T) {
	c := startCluster(t)
	c.publish(nodeName)
	c.grant("templates/webpage.yaml", "--set", "webPage.enabled=true")
	config := c.as("tranche-web")
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ours, err := client.New(config)
	require.NoError(t, err)
	store, guard := live.New(time.Now), signin.New(kube)
	page, err := web.New(web.Options{Source: store, Viewer: guard.Viewer, User: guard.User, Why: store.Explain, Now: time.Now})
	require.NoError(t, err)
	c.run("the page", func(ctx context.Context) error {
		store.Follow(ctx, live.Source{Kubernetes: kube, Ours: ours})
		return nil
	})
	c.await("the page does not know the node", func() bool { return store.Snapshot().Find(nodeName) != nil })
	assert.Empty(t, store.Snapshot().Gaps, "it may read everything")

	h := guard.Handler(page)
	get := func(token string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "/nodes/"+nodeName, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	user, nobody := c.account("user"), c.account("nobody")
	_, err = c.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "user"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "user"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "user"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceDefault, Name: "user"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	status, text := get(user)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "Signed in as system:serviceaccount:default:user")
	assert.Contains(t, text, "H100")
	status, text = get(nobody)
	assert.Equal(t, http.StatusForbidden, status)
	assert.NotContains(t, text, "H100")
	status, _ = get(strings.ToUpper(nobody))
	assert.Equal(t, http.StatusUnauthorized, status)
}
