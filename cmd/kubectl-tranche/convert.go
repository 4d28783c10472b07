package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

const convertExamples = `  # Convert the ConfigMap of the MIG manager
  kubectl -n gpu-operator get configmap default-mig-parted-config -o yaml | kubectl tranche convert -f -

  # Convert pods with annotations or limits of KAI, HAMi or nos
  kubectl tranche convert -f deployment.yaml

  # Convert the claim templates of NVIDIA's DRA driver
  kubectl -n team get resourceclaimtemplates -o yaml | kubectl tranche convert -f -

  # Convert files, and create the profiles
  kubectl tranche convert -f config.yaml -f time-slicing.yaml | kubectl apply -f -`

const convertLong = `Print PartitionProfiles for configuration files of other projects: mig-parted,
NVIDIA's device plugin, AMD's device config manager, Kaiwo and nos. Print
ResourceClaimTemplates, and the objects that name them, for pods that ask for
GPUs by annotations or limits of KAI, HAMi, nos or a device plugin. Print
claims, templates and DeviceClasses of NVIDIA's DRA driver for Tranche.

The files can be those of a project, or objects that have them: ConfigMaps,
objects of Kaiwo and nos, Nodes with labels of these projects, and objects of
any kind with pods, such as Deployments. What has no
counterpart, and what else there is to do, is in comments. What cannot be
converted is an error, with the exit code 2; the rest is printed.`

func newConvertCommand(o *options) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:     "convert -f FILE",
		Short:   "Convert configuration files and pods of other projects",
		Long:    convertLong,
		Example: convertExamples,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return convert(o.in, o.out, files) },
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file to convert, - for standard input; repeatable")
	return cmd
}

func convert(in io.Reader, out io.Writer, files []string) error {
	if len(files) == 0 {
		return errors.New("name a file to convert: -f FILE, or -f - for standard input")
	}
	var documents []formats.Document
	var errs []error
	for _, file := range files {
		read, err := readFormat(in, file)
		documents = append(documents, read...)
		errs = append(errs, err)
	}
	documents = formats.Combine(documents)
	if err := formats.Distinct(documents); err != nil {
		return negative(err)
	}
	if err := refuseImpossible(documents); err != nil {
		return err
	}
	made := map[types.NamespacedName]bool{}
	var lost []error
	for _, d := range documents {
		text, err := printed(&d, made)
		lost = append(lost, err)
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return errors.Join(errors.Join(errs...), negative(errors.Join(lost...)))
}

// refuseImpossible makes errors of profiles with layouts that no GPU can hold.
func refuseImpossible(documents []formats.Document) error {
	gpus, err := models.OneOfEach()
	if err != nil {
		return err
	}
	for _, d := range documents {
		for i := range d.Profiles {
			p := &d.Profiles[i]
			if err := profile.Possible(d.Name+": "+p.Original, p.Spec.Rules, gpus); err != nil {
				*p = p.Fail(err)
			}
		}
	}
	return nil
}

// readFormat reads a file. What of it cannot be converted is an error, and the rest is returned with it.
func readFormat(in io.Reader, file string) ([]formats.Document, error) {
	data, err := readFile(in, file)
	if err != nil {
		return nil, err
	}
	if file == "-" {
		file = "standard input"
	}
	documents, err := formats.Read(file, data)
	return documents, negative(err)
}

// labels are the node labels that name the configurations of a format.
var labels = map[formats.Format]string{
	formats.MIGParted: names.LabelMIGConfig, formats.DevicePlugin: names.LabelDevicePluginConfig, formats.DeviceConfigManager: names.LabelGPUConfigProfile,
}

// printed returns a document as YAML with comments. The error has what cannot be converted. made are the
// ResourceClaimTemplates that are printed already.
func printed(d *formats.Document, made map[types.NamespacedName]bool) (string, error) {
	var b strings.Builder
	if d.Object != nil {
		return printedObject(d, made)
	}
	comment(&b, fmt.Sprintf("%s (%s)", d.Name, d.Format))
	for _, note := range d.Notes {
		comment(&b, note)
	}
	var errs []error
	for _, p := range d.Profiles {
		if p.Err != nil {
			comment(&b, p.Original+" is not converted: "+p.Err.Error())
			errs = append(errs, p.Err)
			continue
		}
		b.WriteString("---\n")
		if label := labels[d.Format]; label != "" {
			comment(&b, fmt.Sprintf("for nodes with the label %s=%s: %s=%s", label, p.Original, names.LabelProfile, p.Name))
		}
		for _, note := range p.Notes {
			comment(&b, note)
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.ProfileKind,
			"metadata": map[string]any{"name": p.Name}, "spec": p.Spec,
		})
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), errors.Join(errs...)
}

// printedObject returns an object, after the templates that it names.
func printedObject(d *formats.Document, made map[types.NamespacedName]bool) (string, error) {
	var b strings.Builder
	whose := d.Object.Names()
	if whose == "" {
		whose = string(d.Format)
	}
	comment(&b, fmt.Sprintf("%s (%s)", d.Name, whose))
	for _, note := range d.Object.Notes {
		comment(&b, note)
	}
	for _, t := range d.Object.Templates {
		name := types.NamespacedName{Namespace: t.Namespace, Name: t.Name}
		if made[name] {
			continue
		}
		made[name] = true
		text, err := templateYAML(t)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n" + string(text))
	}
	if len(d.Object.YAML) > 0 {
		b.WriteString("---\n" + strings.TrimSuffix(string(d.Object.YAML), "\n") + "\n")
	}
	return b.String(), nil
}

// templateYAML returns a template as YAML, with fractions as people write them: "0.5" and not 500m.
func templateYAML(t *resourceapi.ResourceClaimTemplate) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err != nil {
		return nil, err
	}
	requests, _, err := unstructured.NestedSlice(object, "spec", "spec", "devices", "requests")
	for i, r := range t.Spec.Spec.Devices.Requests {
		if r.Exactly == nil || r.Exactly.Capacity == nil {
			continue
		}
		if fraction, has := r.Exactly.Capacity.Requests[names.CapacityFraction]; has && err == nil {
			decimal := strconv.FormatFloat(fraction.AsApproximateFloat64(), 'f', -1, 64)
			err = unstructured.SetNestedField(requests[i].(map[string]any), decimal, "exactly", "capacity", "requests", names.CapacityFraction) //nolint:forcetypeassert // made from a template
		}
	}
	if err == nil {
		err = unstructured.SetNestedSlice(object, requests, "spec", "spec", "devices", "requests")
	}
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(object)
}

// comment writes a comment. What comes from the file stays in it.
func comment(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		b.WriteString("# " + strings.Map(printable, strings.TrimRight(line, "\n")) + "\n")
	}
}

// printable drops control characters, which a terminal would obey, and separators of lines.
func printable(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 {
		return -1
	}
	return r
}
