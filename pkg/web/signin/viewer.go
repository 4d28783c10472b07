package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/web"
)

// User returns the name of the user of a request.
func (g *Guard) User(r *http.Request) string {
	user, err := g.user(r.Context(), tokenOf(r))
	if err != nil {
		return ""
	}
	return user.Username
}

// Viewer returns what the user of a request may see: of nodes and namespaces what they may list.
func (g *Guard) Viewer(r *http.Request) (overview.Viewer, error) {
	user, err := g.user(r.Context(), tokenOf(r))
	if err != nil {
		return overview.Viewer{}, fmt.Errorf("find out who you are: %w", err)
	}
	identity, err := json.Marshal(user)
	if err != nil {
		return overview.Viewer{}, fmt.Errorf("find out who you are: %w", err)
	}
	u := subject{Guard: g, user: user, key: string(identity)}
	may, err := u.all(r.Context(), slicesOf, nodesOf, gpuNodesOf, plansOf, claimsOf, podsOf)
	if err != nil {
		return overview.Viewer{}, err
	}
	if !may[slicesOf] {
		return overview.Viewer{}, &web.RefusedError{
			Status: http.StatusForbidden, Title: "You may not see the GPUs",
			Text:    "You are " + user.Username + ", who is not allowed to list ResourceSlices. Ask an administrator for the ClusterRole tranche-user.",
			Command: "kubectl auth can-i list resourceslices.resource.k8s.io --as=" + user.Username,
		}
	}
	v := overview.Viewer{NoNodes: !may[nodesOf], NoProfiles: !may[gpuNodesOf], NoPlans: !may[plansOf], Key: u.key}
	claims, pods := map[string]bool{}, map[string]bool{}
	if !may[claimsOf] {
		v.Claims = func(namespace string) bool { return claims[namespace] }
	}
	if !may[podsOf] {
		v.Pods = func(namespace string) bool { return pods[namespace] }
	}
	v.Ask = func(ctx context.Context, claimsIn, podsIn []string) {
		if v.Claims != nil {
			u.learn(ctx, claimsOf, claimsIn, claims)
		}
		if v.Pods != nil {
			u.learn(ctx, podsOf, podsIn, pods)
		}
	}
	return v, nil
}

// What the page shows is what can be listed of these.
var (
	slicesOf   = authorizationv1.ResourceAttributes{Group: resourceapi.GroupName, Resource: "resourceslices"}
	claimsOf   = authorizationv1.ResourceAttributes{Group: resourceapi.GroupName, Resource: "resourceclaims"}
	nodesOf    = authorizationv1.ResourceAttributes{Resource: "nodes"}
	podsOf     = authorizationv1.ResourceAttributes{Resource: "pods"}
	gpuNodesOf = authorizationv1.ResourceAttributes{Group: v1beta1.GroupName, Resource: "gpunodes"}
	plansOf    = authorizationv1.ResourceAttributes{Group: v1beta1.GroupName, Resource: "partitionplans"}
)

// subject is a user about whose rights is asked.
type subject struct {
	*Guard
	user *authenticationv1.UserInfo
	key  string
}

// learn finds out in which namespaces the user may list objects. Where that does not become known in
// time, they may not.
func (u subject) learn(ctx context.Context, of authorizationv1.ResourceAttributes, namespaces []string, may map[string]bool) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	questions := make([]authorizationv1.ResourceAttributes, 0, len(namespaces))
	for _, namespace := range namespaces {
		if _, ok := may[namespace]; !ok && namespace != "" {
			of.Namespace = namespace
			questions = append(questions, of)
		}
	}
	answers, _ := u.all(ctx, questions...) // what is not known is false
	for _, q := range questions {
		may[q.Namespace] = answers[q]
	}
}

// all asks several questions at once. The answers are by the questions.
func (u subject) all(ctx context.Context, questions ...authorizationv1.ResourceAttributes) (map[authorizationv1.ResourceAttributes]bool, error) {
	answers := make([]bool, len(questions))
	var group errgroup.Group
	group.SetLimit(maxReviews / 2) // there is room for others
	for i, of := range questions {
		group.Go(func() (err error) {
			answers[i], err = u.may(ctx, of)
			return err
		})
	}
	err := group.Wait()
	may := make(map[authorizationv1.ResourceAttributes]bool, len(questions))
	for i, of := range questions {
		may[of] = answers[i]
	}
	return may, err
}

// accessKey is what the API server is asked about a user.
type accessKey struct{ user, group, resource, namespace string }

// may asks the API server whether the user may list objects.
func (u subject) may(ctx context.Context, of authorizationv1.ResourceAttributes) (bool, error) {
	key := accessKey{u.key, of.Group, of.Resource, of.Namespace}
	if v, ok := u.access.Get(key); ok {
		return v == true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	done, err := u.accessLocks.Lock(ctx, key)
	if err != nil {
		return false, err
	}
	defer done()
	if v, ok := u.access.Get(key); ok {
		return v == true, nil
	}
	if done, err = acquire(ctx, u.reviews); err != nil {
		return false, err
	}
	defer done()
	of.Verb = "list"
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.user.Username, UID: u.user.UID, Groups: u.user.Groups, ResourceAttributes: &of,
	}}
	for name, values := range u.user.Extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	review, err = u.kubernetes.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the API server what %s may list: %w", u.user.Username, err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	u.access.Add(key, allowed, acceptedTTL)
	return allowed, nil
}
