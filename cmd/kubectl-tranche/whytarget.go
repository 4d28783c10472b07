package main

import (
	"bytes"

	"github.com/tranche-dev/tranche/pkg/why"

	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// podKind is the kind of pods.
const podKind = "Pod"

// explained are the kinds that `why` accepts, by their names for kubectl: the kind, the resource, and
// short names.
var explained = []explainedKind{
	{podKind, "", "v1", []string{"pod", "pods", "po"}},
	{why.KindJob, "batch", "v1", []string{"job", "jobs"}},
	{why.KindDeployment, "apps", "v1", []string{"deployment", "deployments", "deploy"}},
	{why.KindStatefulSet, "apps", "v1", []string{"statefulset", "statefulsets", "sts"}},
	{why.KindReplicaSet, "apps", "v1", []string{"replicaset", "replicasets", "rs"}},
	{why.KindJobSet, "jobset.x-k8s.io", "v1alpha2", []string{"jobset", "jobsets"}},
	{why.KindResourceClaim, "resource.k8s.io", "v1", []string{"resourceclaim", "resourceclaims"}},
}

type explainedKind struct {
	kind, group, version string
	names                []string
}

// accepted names the kinds for people.
const accepted = "pod, job, deployment, statefulset, replicaset, jobset or resourceclaim"

// target is an object that is asked about. The namespace is empty if it was not named.
type target struct{ kind, namespace, name string }

var errNoTarget = errors.New("name an object: kubectl tranche why POD, TYPE/NAME, TYPE NAME or -f FILE")

// parseTargets reads POD or TYPE/NAME of each argument, or the names of one type.
func parseTargets(args []string) (all []target, err error) {
	kind := ""
	if len(args) > 1 && explainedBy(args[0]) != nil {
		kind, args = args[0]+"/", args[1:]
	}
	for _, arg := range args {
		t, err := parseTarget(kind + arg)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errNoTarget
	}
	return all, nil
}

func parseTarget(arg string) (target, error) {
	kind, name, typed := strings.Cut(arg, "/")
	if !typed {
		kind, name = "pod", arg
	}
	if name == "" || strings.Contains(name, "/") {
		return target{}, errNoTarget
	}
	if k := explainedBy(kind); k != nil {
		return target{kind: k.kind, name: name}, nil
	}
	return target{}, fmt.Errorf("%q cannot be explained: name a %s", kind, accepted)
}

// explainedBy returns the kind with a name for kubectl, nil if it is not one that can be explained.
func explainedBy(kind string) *explainedKind {
	plain, group, _ := strings.Cut(strings.ToLower(kind), ".")
	for _, k := range explained {
		// kubectl also accepts jobs.batch and jobs.v1.batch.
		if slices.Contains(k.names, plain) && (group == "" || group == k.group || strings.HasSuffix(group, "."+k.group)) {
			return &k
		}
	}
	return nil
}

// targetsIn reads the objects of a file in YAML or JSON; - is standard input. Objects of other kinds are
// left out.
func targetsIn(in io.Reader, file string) ([]target, error) {
	data, err := readFile(in, file)
	if err != nil {
		return nil, err
	}
	var all []target
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if err := eachObject(&o, func(o *unstructured.Unstructured) { all = append(all, targetOf(o)...) }); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no %s", file, accepted)
	}
	return all, nil
}

// eachObject calls f for an object, or for the objects of a list.
func eachObject(o *unstructured.Unstructured, f func(*unstructured.Unstructured)) error {
	if !o.IsList() {
		f(o)
		return nil
	}
	return o.EachListItem(func(item runtime.Object) error {
		if o, ok := item.(*unstructured.Unstructured); ok {
			f(o)
		}
		return nil
	})
}

func targetOf(o *unstructured.Unstructured) []target {
	gv := o.GroupVersionKind()
	for _, k := range explained {
		if gv.Kind == k.kind && gv.Group == k.group && o.GetName() != "" {
			return []target{{k.kind, o.GetNamespace(), o.GetName()}}
		}
	}
	return nil
}
