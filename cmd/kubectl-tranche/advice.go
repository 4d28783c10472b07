package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
)

// role is a role of the chart for users.
type role struct {
	// create is what `kubectl create` binds it by.
	create string
	// namespaced is true if it is bound in the namespace of the request.
	namespaced bool
	// writes is true if it is for requests that write.
	writes bool
	// reveals is true if it shows what others do. Then it is proposed only to those who cannot go on without it.
	reveals   bool
	resources []string
}

// systemPods are the pods that are selected by labels: those of Tranche.
const systemPods = "pods of Tranche"

// roles are the roles for users. A test compares them with the chart.
var roles = []role{
	{create: "clusterrolebinding %s --clusterrole=tranche-user", resources: []string{
		"deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io", "devicetaintrules.resource.k8s.io", "storageclasses.storage.k8s.io",
	}},
	{create: "clusterrolebinding %s --clusterrole=tranche-user-nodes", reveals: true, resources: []string{"nodes"}},
	{create: "clusterrolebinding %s --clusterrole=tranche-view", reveals: true, resources: []string{
		"gpunodes.tranche.dev", "partitionprofiles.tranche.dev", "partitionplans.tranche.dev",
	}},
	{create: "clusterrolebinding %s --clusterrole=tranche-profile-admin", writes: true, reveals: true, resources: []string{
		"gpunodes.tranche.dev", "partitionprofiles.tranche.dev", "partitionplans.tranche.dev",
	}},
	{create: "rolebinding %s --role=tranche-usage", namespaced: true, resources: []string{systemPods, "pods/proxy"}},
	{create: "rolebinding %s --clusterrole=tranche-user-namespace", namespaced: true, resources: []string{
		"pods", "events", "persistentvolumeclaims", "resourcequotas", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io",
		"jobs.batch", "replicasets.apps", "deployments.apps", "statefulsets.apps", "jobsets.jobset.x-k8s.io", "workloads.kueue.x-k8s.io",
	}},
}

// refusal is a request that the API server refused.
type refusal struct {
	resource, namespace string
	writes              bool
}

// refusals collects the requests of a command that the API server refuses.
type refusals struct {
	mu  sync.Mutex // protects all
	all []refusal
}

var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// wrap returns a transport to an API server whose paths begin with prefix.
func (r *refusals) wrap(prefix string, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(q)
		if err != nil || answer.StatusCode != http.StatusForbidden {
			return answer, err
		}
		bare := q.Clone(q.Context())
		bare.URL.Path = strings.TrimPrefix(bare.URL.Path, strings.TrimSuffix(prefix, "/"))
		info, infoErr := requests.NewRequestInfo(bare)
		if infoErr != nil {
			return answer, err
		}
		f := refusal{resource: info.Resource, namespace: info.Namespace, writes: !slices.Contains([]string{"get", "list", "watch"}, info.Verb)}
		if info.APIGroup != "" {
			f.resource += "." + info.APIGroup
		}
		switch {
		case info.Subresource != "":
			f.resource += "/" + info.Subresource
		case f.resource == "pods" && q.URL.Query().Get("labelSelector") != "":
			f.resource = systemPods
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.Contains(r.all, f) {
			r.all = append(r.all, f)
		}
		return answer, err
	})
}

// advice returns the commands by which an administrator allows a user what was refused, one in each line. err is
// the error of the command.
func (r *refusals) advice(ctx context.Context, k kubernetes.Interface, err error) string {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	var lines []string
	who := ""
	for _, role := range roles {
		for _, f := range all {
			if role.reveals && !apierrors.IsForbidden(err) || role.writes != f.writes || role.namespaced != (f.namespace != "") || !slices.Contains(role.resources, f.resource) {
				continue
			}
			if who == "" {
				who = whoAmI(ctx, k)
			}
			if line := role.binding(who, f.namespace); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "To allow this, an administrator can run:\n  " + strings.Join(lines, "\n  ")
}

// whoAmI returns the name of the user, empty if the API server does not tell.
func whoAmI(ctx context.Context, k kubernetes.Interface) string {
	ctx, cancel := context.WithTimeout(ctx, completionDeadline)
	defer cancel()
	self, err := k.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return self.Status.UserInfo.Username
}

var (
	outsideNames = regexp.MustCompile(`[^a-z0-9.-]+`)
	plainWord    = regexp.MustCompile(`^[a-zA-Z0-9@%+=:,./_-]+$`)
)

// binding returns the command that gives a user the role.
func (r *role) binding(user, namespace string) string {
	kind, role, _ := strings.Cut(r.create, " %s ")
	_, name, _ := strings.Cut(role, "=")
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	subject := "--user=" + user
	switch {
	case isAccount:
		user, subject = account, "--serviceaccount="+account
	case user == "":
		user, subject = "user", "--user=USER"
	case !plainWord.MatchString(user):
		subject = "--user='" + strings.ReplaceAll(user, "'", `'\''`) + "'"
	}
	line := fmt.Sprintf("kubectl create %s %s-%s %s %s", kind, name, strings.Trim(outsideNames.ReplaceAllString(strings.ToLower(user), "-"), "-."), role, subject)
	if namespace != "" {
		line += " -n " + namespace
	}
	return line
}
