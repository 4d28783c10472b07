package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// Object is a converted object.
type Object struct {
	// Projects are the projects whose formats the pods use to request GPUs.
	Projects []claimtemplate.Project
	// Templates are the templates that the object names, each once.
	Templates []*resourceapi.ResourceClaimTemplate
	// YAML is the converted object.
	YAML []byte
	// Notes list what has no counterpart.
	Notes []string
}

// Pods converts an object, and returns nil if it has no pods. before is the number of lines before the
// object, which errors add to line numbers. If it is negative, errors have no line numbers.
func Pods(data []byte, before int) (*Object, error) {
	document, expanded, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	if expanded {
		before = -1 // its lines are others
	}
	root := document.Content[0]
	found := podsIn(root, "")
	if len(found) == 0 {
		return nil, nil
	}
	namespace := ""
	if n := valueOf(valueOf(root, "metadata"), "namespace"); n != nil {
		namespace = n.Value
	}
	o := &Object{}
	var errs []error
	for _, p := range found {
		where := strings.TrimPrefix(p.path+".spec", ".")
		result, project := p.convert()
		for i, problem := range result.Problems {
			if before >= 0 {
				result.Problems[i] += fmt.Sprintf(" (line %d)", before+p.lineOf(problem))
			}
		}
		if len(result.Problems) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s", where, strings.Join(result.Problems, "; ")))
			continue
		}
		if project != "" && !slices.Contains(o.Projects, project) {
			o.Projects = append(o.Projects, project)
		}
		for _, c := range result.Claims {
			if !slices.ContainsFunc(o.Templates, func(t *resourceapi.ResourceClaimTemplate) bool { return t.Name == c.Template }) {
				o.Templates = append(o.Templates, &resourceapi.ResourceClaimTemplate{
					TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaimTemplate"},
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Template},
					Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: c.Spec},
				})
			}
		}
		for _, note := range result.Notes {
			o.Notes = append(o.Notes, where+": "+note)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o.Notes = append(o.Notes, notCarriedOver(root)...)
	switch {
	case len(o.Projects) > 0:
	case slices.ContainsFunc(found, func(p pods) bool { return valueOf(valueOf(p.node, "spec"), "resourceClaims") != nil }):
		o.Notes = append(o.Notes, "the pods have claims, which keep their names: convert the ResourceClaims and ResourceClaimTemplates that they name; the object is unchanged")
	default:
		o.Notes = append(o.Notes, "the pods request no GPU in a format that is converted: the object is unchanged")
	}
	if o.YAML, err = printObject(document); err != nil {
		return nil, err
	}
	return o, nil
}

// pods is a pod, or a template of pods.
type pods struct {
	path string
	// node has metadata and spec.
	node *yamlv3.Node
}

// podsIn finds pods in objects of any kind by their structure, a spec with containers.
func podsIn(n *yamlv3.Node, path string) (all []pods) {
	switch n.Kind {
	case yamlv3.MappingNode:
		if c := valueOf(valueOf(n, "spec"), "containers"); c != nil && c.Kind == yamlv3.SequenceNode {
			return []pods{{path, n}}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			all = append(all, podsIn(n.Content[i+1], path+"."+n.Content[i].Value)...)
		}
	case yamlv3.SequenceNode:
		for i, item := range n.Content {
			all = append(all, podsIn(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return all
}

// lineOf returns the line of the annotation or limit that a problem names, or of the pod's spec.
func (p pods) lineOf(problem string) int {
	spec := valueOf(p.node, "spec")
	in, line, longest := p.node, spec.Line, 0
	for _, list := range []string{"initContainers", "containers"} {
		if all := valueOf(spec, list); all != nil {
			for _, c := range all.Content {
				if name := valueOf(c, "name"); name != nil && strings.HasPrefix(problem, "container "+name.Value+":") {
					in = c
				}
			}
		}
	}
	anyNode(in, func(n *yamlv3.Node) bool {
		for _, name := range []string{"annotations", "requests", "limits"} {
			of := valueOf(n, name)
			for i, key := range keysOf(of) {
				if len(key) >= longest && strings.Contains(problem, key) {
					line, longest = of.Content[2*i].Line, len(key)
				}
			}
		}
		return false
	})
	return line
}

// convert converts a pod, and edits it. A result with problems changes nothing.
func (p pods) convert() (Result, claimtemplate.Project) {
	failed := func(err error) (Result, claimtemplate.Project) { return Result{Problems: []string{err.Error()}}, "" }
	var data []byte
	text, err := yamlv3.Marshal(p.node)
	if err == nil {
		// As the API server reads it: keys are unique, and numbers are not strings.
		data, err = yaml.YAMLToJSONStrict(text)
	}
	var pod corev1.PodTemplateSpec
	if err == nil {
		err = json.Unmarshal(data, &pod)
	}
	if err != nil {
		return failed(fmt.Errorf("it is not a pod: %w", err))
	}
	projects := Of(&pod)
	if len(projects) > 1 {
		return failed(fmt.Errorf("the pod requests GPUs in the formats of %s: keep one, since a namespace has one", namesOf(projects)))
	}
	if err := errors.Join(onlyRequested(&pod), gated(&pod)); err != nil {
		return failed(err)
	}
	project := claimtemplate.Project("")
	if len(projects) > 0 {
		project = projects[0]
	}
	result := Pod(project, &pod)
	if err := p.edit(result); err != nil {
		return failed(err)
	}
	return result, project
}

// onlyRequested returns an error if a GPU is requested without a limit, which the API server rejects.
func onlyRequested(pod *corev1.PodTemplateSpec) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, requested := range c.Resources.Requests {
			if !claimtemplate.Known(string(name)) {
				continue
			}
			if limit, has := c.Resources.Limits[name]; !has || limit.Cmp(requested) != 0 {
				return fmt.Errorf("container %s: %s is in requests, and the API server refuses it without the same in limits: write it there", c.Name, name)
			}
		}
	}
	return nil
}

// gated returns an error if the pods depend on a project that is no longer installed to be scheduled or
// deleted.
func gated(pod *corev1.PodTemplateSpec) error {
	for _, gate := range pod.Spec.SchedulingGates {
		if claimtemplate.Known(gate.Name) {
			return fmt.Errorf("schedulingGates: %s: the pod waits until %s is removed: remove it", gate.Name, gate.Name)
		}
	}
	for _, name := range pod.Finalizers {
		if claimtemplate.Known(name) {
			return fmt.Errorf("finalizers: %s: the pod cannot be deleted until it is removed: remove it", name)
		}
	}
	return nil
}

// notCarriedOver returns notes about labels, annotations and node selectors of known projects anywhere
// in the object.
func notCarriedOver(root *yamlv3.Node) (notes []string) {
	add := func(note string) {
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	anyNode(root, func(n *yamlv3.Node) bool {
		for _, key := range keysOf(valueOf(n, "nodeSelector")) {
			if claimtemplate.Known(key) {
				add("nodeSelector " + key + " stays as it is; nodes must keep the label")
			}
		}
		for _, in := range []struct{ list, kind string }{{"labels", "label "}, {"annotations", "annotation "}} {
			for _, key := range keysOf(valueOf(n, in.list)) {
				if text := counterparts[key]; text != "" {
					add(in.kind + key + " has no counterpart: " + text)
				} else if claimtemplate.Known(key) {
					add(in.kind + key + " stays as it is; Tranche does not read it")
				}
			}
		}
		return false
	})
	return notes
}

// counterparts are what to use instead of labels and annotations that change which GPU a pod gets, or
// when.
var counterparts = map[string]string{
	"kai.scheduler/queue":                    "use a ResourceQuota or Kueue",
	"runai/queue":                            "use a ResourceQuota or Kueue",
	"kai.scheduler/node-pool":                "use a nodeSelector",
	"kai.scheduler/gpu-compute-sharing-mode": "the PartitionProfile sets the sharing strategy",
	"hami.io/gpu-scheduler-policy":           "the default scheduler chooses the GPU",
	"hami.io/node-scheduler-policy":          "the default scheduler chooses the GPU",
	"hami.io/device-scoring-weights":         "the default scheduler chooses the GPU",
	"nos.nebuly.com/capacity":                "use a ResourceQuota or Kueue",
	"nvidia.com/gpu.memory":                  "it is a node label, and requests no GPU: use a claim",
}

// Names returns the display names of the object's projects.
func (o *Object) Names() string { return namesOf(o.Projects) }

func namesOf(projects []claimtemplate.Project) string {
	var all []string
	for _, p := range projects {
		all = append(all, map[claimtemplate.Project]string{claimtemplate.KAI: "KAI", claimtemplate.HAMi: "HAMi"}[p])
		if all[len(all)-1] == "" {
			all[len(all)-1] = string(p)
		}
	}
	return strings.Join(all, " and ")
}
