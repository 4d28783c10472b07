package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/claimtemplate/convert"
)

// translator asks the API server what the chart's policies make of pods.
type translator struct {
	*suite
	// namespaces have the label of the project by which they are found here. "other" is no project.
	namespaces map[string]string
}

func startTranslator(t *testing.T) *translator {
	t.Helper()
	tr := &translator{suite: start(t), namespaces: map[string]string{}}
	for _, project := range []string{"kai", "hami", "nos", "other"} {
		made, err := tr.client.CoreV1().Namespaces().Create(tr.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "e2e-" + project + "-", Labels: map[string]string{names.LabelTranslate: project, resourceapi.DRAAdminNamespaceLabelKey: "true"},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, tr.client.CoreV1().Namespaces().Delete(tr.ctx, made.Name, metav1.DeleteOptions{}))
		})
		tr.namespaces[project] = made.Name
		if project != "other" {
			tr.waitTranslatedIn(made.Name, project)
		}
	}
	return tr
}

// would is what would become of a pod.
func (tr *translator) would(project string, p *corev1.Pod) (*corev1.Pod, error) {
	return tr.client.CoreV1().Pods(tr.namespaces[project]).Create(tr.ctx, p.DeepCopy(), dryCreate)
}

type change func(*corev1.Pod)

// podOf has an init container and two containers: prepare, main, sidecar.
func podOf(changes ...change) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "prepare", Image: "none"}},
			Containers:     []corev1.Container{{Name: "main", Image: "none"}, {Name: "sidecar", Image: "none"}},
		},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

func withAnnotations(pairs ...string) change {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// withLimits sets limits of a container; that with index -1 is the init container.
func withLimits(index int, pairs ...string) change {
	return func(p *corev1.Pod) {
		c := &p.Spec.InitContainers[0]
		if index >= 0 {
			c = &p.Spec.Containers[index]
		}
		if c.Resources.Limits == nil {
			c.Resources.Limits = corev1.ResourceList{}
		}
		for i := 0; i < len(pairs); i += 2 {
			c.Resources.Limits[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
	}
}

func withClaim(name, template string) change {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Claims = append(p.Spec.Containers[i].Resources.Claims, corev1.ResourceClaim{Name: name})
		}
	}
}

func byScheduler(name string) change { return func(p *corev1.Pod) { p.Spec.SchedulerName = name } }

// said is what became of a pod: its claims, the limits that are not of CPU and memory, and the
// scheduler unless it is the default.
func said(p *corev1.Pod) (all []string) {
	templates := map[string]string{}
	for _, c := range p.Spec.ResourceClaims {
		templates[c.Name] = *c.ResourceClaimTemplateName
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			for _, claim := range c.Resources.Claims {
				all = append(all, fmt.Sprintf("%s: %s=%s", c.Name, claim.Name, templates[claim.Name]))
				delete(templates, claim.Name)
			}
			for name, q := range c.Resources.Limits {
				all = append(all, fmt.Sprintf("%s: %s: %s", c.Name, name, q.String()))
			}
			if len(c.Resources.Limits) != len(c.Resources.Requests) {
				all = append(all, fmt.Sprintf("%s: requests %v", c.Name, c.Resources.Requests))
			}
		}
	}
	for name := range templates {
		all = append(all, "nobody: "+name)
	}
	if p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		all = append(all, p.Spec.SchedulerName)
	}
	return all
}

type table = map[string]struct {
	pod  []change
	want []string
}

// each holds what a table says against the API server. What begins with "refused: " is part of
// the error.
func (tr *translator) each(project string, tests table) {
	for name, test := range tests {
		tr.t.Run(project+"/"+name, func(t *testing.T) {
			got, err := tr.would(project, podOf(test.pod...))
			offline(t, claimtemplate.Project(project), podOf(test.pod...), got, err)
			if len(test.want) == 1 && strings.HasPrefix(test.want[0], "refused: ") {
				require.Error(t, err)
				assert.Contains(t, err.Error(), strings.TrimPrefix(test.want[0], "refused: "))
				assert.True(t, apierrors.IsInvalid(err), "%v", err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, said(got))
			assert.Equal(t, podOf(test.pod...).Annotations, got.Annotations, "annotations stay")
			for _, c := range got.Spec.ResourceClaims {
				if !strings.HasPrefix(*c.ResourceClaimTemplateName, "mine") {
					_, err := claimtemplate.Parse(*c.ResourceClaimTemplateName)
					assert.NoError(t, err, "the controller cannot read the name")
				}
			}
		})
	}
}

// offline compares what the API server makes of a pod with what kubectl tranche convert does.
func offline(t *testing.T, project claimtemplate.Project, before, after *corev1.Pod, refused error) {
	t.Helper()
	pod := &corev1.PodTemplateSpec{ObjectMeta: before.ObjectMeta, Spec: before.Spec}
	r := convert.Pod(project, pod)
	if refused != nil {
		if len(r.Problems) == 0 {
			assert.Contains(t, refused.Error(), "select GPUs by more than 180 characters")
			assert.True(t, slices.ContainsFunc(r.Claims, func(c convert.Claim) bool { return !strings.HasPrefix(c.Template, claimtemplate.Prefix) }),
				"a policy can write the template, too: %v", r.Claims)
			return
		}
		if strings.Contains(refused.Error(), "ValidatingAdmissionPolicy") {
			assert.Contains(t, refused.Error(), strings.Join(r.Problems, "; "))
		}
		return
	}
	require.Empty(t, r.Problems)
	if len(r.Claims) > 0 {
		assert.Contains(t, convert.Of(pod), project)
	}
	for _, c := range r.Claims {
		container := &before.Spec.Containers[c.Index]
		if c.Init {
			container = &before.Spec.InitContainers[c.Index]
		}
		before.Spec.ResourceClaims = append(before.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c.Name, ResourceClaimTemplateName: &c.Template})
		container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: c.Name})
		for _, name := range c.Remove {
			delete(container.Resources.Limits, name)
			delete(container.Resources.Requests, name)
		}
		request, err := claimtemplate.Parse(c.Template)
		require.NoError(t, err)
		assert.Equal(t, request.Spec(), c.Spec, "it is not what the controller makes")
	}
	if r.Scheduler != "" || before.Spec.SchedulerName == "" {
		before.Spec.SchedulerName = corev1.DefaultSchedulerName
	}
	for _, list := range [][]corev1.Container{before.Spec.InitContainers, before.Spec.Containers} {
		for i := range list {
			list[i].Resources.Requests = list[i].Resources.Limits // as the API server sets them
		}
	}
	assert.Equal(t, said(after), said(before))
}
