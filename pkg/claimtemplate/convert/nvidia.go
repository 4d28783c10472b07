package convert

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// The kinds of objects.
const (
	claimKind    = "ResourceClaim"
	templateKind = "ResourceClaimTemplate"
	classKind    = "DeviceClass"
	domainKind   = "ComputeDomain"
)

// ClaimKinds are the kinds that Claims converts.
var ClaimKinds = []string{claimKind, templateKind, classKind, domainKind}

// Claims converts an object of one of ClaimKinds. The result has no YAML if the object is not needed.
// Claims leaves objects that NVIDIA's driver does not serve unchanged. The error lists everything that
// has no counterpart.
func Claims(kind string, text strict.Text) (*Object, error) {
	if kind == domainKind {
		return &Object{YAML: text.Data, Notes: []string{
			"a ComputeDomain stays with NVIDIA's driver, whose chart serves it beside Tranche with resources.gpus.enabled=false: the object is unchanged"}}, nil
	}
	read, err := asV1(text)
	if err != nil {
		return nil, err
	}
	convert := convertClass
	switch kind {
	case claimKind:
		convert = convertClaim
	case templateKind:
		convert = convertTemplate
	}
	o, err := convert(read)
	if o != nil && bytes.Equal(o.YAML, read.Data) {
		o.YAML = text.Data // unchanged, in its version
	}
	return o, err
}

// asV1 returns the object in version v1 of the API. In older versions, requests have the fields of exactly
// next to the name.
func asV1(text strict.Text) (strict.Text, error) {
	var o map[string]any
	if err := yaml.Unmarshal(text.Data, &o); err != nil {
		return text, fmt.Errorf("%s: %w", text.File, err)
	}
	version, _ := o["apiVersion"].(string)
	switch version {
	case "resource.k8s.io/v1", "resource.k8s.io/v1beta2":
		return text, nil
	case "resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha3":
	default:
		return text, fmt.Errorf("%s: apiVersion is %q, it can be resource.k8s.io/v1, v1beta2, v1beta1 or v1alpha3: rewrite an older claim with a resourceClassName", text.File, version)
	}
	spec := o
	for _, key := range []string{"spec", "spec", "devices"} {
		if next, is := spec[key].(map[string]any); is {
			spec = next
		}
	}
	requests, _ := spec["requests"].([]any)
	for _, r := range requests {
		request, is := r.(map[string]any)
		if !is || request["firstAvailable"] != nil || request["exactly"] != nil {
			continue
		}
		exactly := map[string]any{}
		for key, value := range request {
			if key != "name" {
				exactly[key] = value
				delete(request, key)
			}
		}
		request["exactly"] = exactly
	}
	data, err := yaml.Marshal(o)
	return strict.Text{File: text.File, Data: data, Before: -1}, err
}

// converter collects the problems and notes of an object.
type converter struct {
	problems *strict.Problems
	notes    []string
	// changed is true if any of it is NVIDIA's.
	changed bool
}

func (c *converter) note(path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	if note := path + fmt.Sprintf(format, args...); !slices.Contains(c.notes, note) {
		c.notes = append(c.notes, note)
	}
}

func convertClaim(text strict.Text) (*Object, error) {
	var o resourceapi.ResourceClaim
	problems, err := text.Decode(&o)
	if err != nil {
		return nil, err
	}
	if _, made := o.Annotations[resourceapi.PodResourceClaimAnnotation]; made {
		return &Object{Notes: []string{"was made for a pod from a template: convert the template"}}, nil
	}
	c := &converter{problems: problems}
	c.devices("spec.devices", &o.Spec.Devices)
	o.Status = resourceapi.ResourceClaimStatus{}
	return c.object(text, &o, &o.TypeMeta, &o.ObjectMeta)
}

func convertTemplate(text strict.Text) (*Object, error) {
	var o resourceapi.ResourceClaimTemplate
	problems, err := text.Decode(&o)
	if err != nil {
		return nil, err
	}
	c := &converter{problems: problems}
	c.devices("spec.spec.devices", &o.Spec.Spec.Devices)
	return c.object(text, &o, &o.TypeMeta, &o.ObjectMeta)
}

// charts are notes about the classes of NVIDIA's chart.
var charts = map[string]string{
	wholeClass: "class " + ourWhole + " of Tranche's chart is in its place: nothing is to be created",
	migClass:   "class " + ourMIG + " of Tranche's chart is in its place, and one for each profile: nothing is to be created",
	vfioClass:  "has no counterpart: Tranche does not pass GPUs to virtual machines",
}

func convertClass(text strict.Text) (*Object, error) {
	var o resourceapi.DeviceClass
	problems, err := text.Decode(&o)
	if err != nil {
		return nil, err
	}
	if note := charts[o.Name]; note != "" {
		return &Object{Notes: []string{note}}, nil
	}
	c := &converter{problems: problems}
	c.selectors("spec.selectors", o.Spec.Selectors, anyDevices)
	o.Spec.Config = slices.DeleteFunc(o.Spec.Config, func(config resourceapi.DeviceClassConfiguration) bool {
		return c.config("spec.config", config.Opaque)
	})
	if c.changed {
		// The selectors of NVIDIA's driver need not exclude AMD's GPUs, nor shares.
		o.Spec.Selectors = slices.Insert(o.Spec.Selectors, 0, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: nvidiaOnly}})
		if o.Spec.ExtendedResourceName != nil {
			c.note("spec.extendedResourceName", "classes of Tranche's chart serve nvidia.com/mig-<profile> and, with extendedResources.nvidia.enabled, nvidia.com/gpu: only one class should serve a resource")
		}
	}
	return c.object(text, &o, &o.TypeMeta, &o.ObjectMeta)
}

var nvidiaOnly = fmt.Sprintf(`device.driver == %[1]q && device.attributes[%[1]q].?vendor.orValue("") == "nvidia" && device.attributes[%[1]q].?type.orValue("") in ["gpu", "mig"]`, names.DriverName)

// object returns the result: the changed object without fields that a cluster added, or the text if
// nothing changed.
func (c *converter) object(text strict.Text, o any, kind *metav1.TypeMeta, meta *metav1.ObjectMeta) (*Object, error) {
	if err := c.problems.Err(); err != nil {
		return nil, err
	}
	if !c.changed {
		c.note("", "names none of the classes and attributes of NVIDIA's driver, so the object is unchanged; if a class in it selects NVIDIA's devices, convert that DeviceClass")
		return &Object{YAML: text.Data, Notes: c.notes}, nil
	}
	if kind.Kind != classKind {
		c.note("", "a spec cannot be changed: delete the %s that exists, and create this one", kind.Kind)
	}
	kind.APIVersion = resourceapi.SchemeGroupVersion.String()
	annotations := map[string]string{}
	for key, value := range meta.Annotations {
		if !strings.HasPrefix(key, "kubectl.kubernetes.io/") {
			annotations[key] = value
		}
	}
	*meta = metav1.ObjectMeta{Name: meta.Name, GenerateName: meta.GenerateName, Namespace: meta.Namespace, Labels: meta.Labels, Annotations: annotations}
	data, err := yaml.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text.File, err)
	}
	return &Object{YAML: data, Notes: c.notes}, nil
}
