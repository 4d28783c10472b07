package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/uninstall"
	"github.com/tranche-dev/tranche/pkg/usage"
	"github.com/tranche-dev/tranche/pkg/why"
)

// kinds are the kinds of what -o json and -o yaml print, beside objects of Kubernetes. A list becomes the
// items of its kind.
var kinds = map[string]any{
	"ClassList":               []cluster.Class{},
	"Cluster":                 &cluster.Summary{},
	"ClusterSummary":          overview.Overview{},
	"DefragmentationPlanList": defrag.Advice{},
	"ExplanationList":         explanations{},
	"NodeUsageList":           []usage.Node{},
	"ObjectExplanation":       &why.OwnerExplanation{},
	"PlanForecast":            rollout.Forecast{},
	"PodExplanation":          &why.Explanation{},
	"PodUsageList":            usage.PodList{},
	"ProfileList":             []cluster.Profile{},
	"UninstallCheck":          &uninstall.Report{},
	"Version":                 versions{},
}

type explanations []json.RawMessage

func (s *session) forPrograms() bool { return s.output == "json" || s.output == "yaml" }

func (s *session) write(document any) error {
	if s.output == "yaml" {
		return picture.WriteYAML(s.out, document)
	}
	return picture.WriteJSON(s.out, document)
}

// list is what is printed of several objects of Kubernetes, as kubectl does.
type list struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

// showEach shows objects by name: one as it is, several in a list. What cannot be read is an error, and the others
// are shown.
func showEach[T runtime.Object](s *session, names []string, read func(name string) (T, error), draw func(*picture.Page, T)) error {
	all := list{APIVersion: "v1", Kind: "List", Items: []json.RawMessage{}}
	var errs []error
	for _, name := range names {
		object, err := read(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		document, err := documentOf(object)
		if len(all.Items) > 0 && !s.forPrograms() {
			err = errors.Join(err, s.say(""))
		}
		if all.Items = append(all.Items, document); !s.forPrograms() {
			err = errors.Join(err, s.screen().Draw(s.out, func(p *picture.Page) { draw(p, object) }))
		}
		errs = append(errs, err)
	}
	switch {
	case !s.forPrograms():
	case len(names) > 1:
		errs = append(errs, s.write(all))
	case len(all.Items) > 0:
		errs = append(errs, s.write(all.Items[0]))
	}
	return errors.Join(errs...)
}

// documentOf returns a content as JSON with its version and kind. Objects of Kubernetes have theirs.
func documentOf(content any) (json.RawMessage, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(content); err != nil {
		return nil, fmt.Errorf("write %T as JSON: %w", content, err)
	}
	body := bytes.TrimSpace(text.Bytes())
	if _, ok := content.(runtime.Object); ok {
		return body, nil
	}
	switch {
	case string(body) == "null":
		body = []byte(`{"items":[]}`)
	case body[0] == '[':
		body = fmt.Appendf(nil, `{"items":%s}`, body)
	}
	for kind, of := range kinds {
		if reflect.TypeOf(of) == reflect.TypeOf(content) {
			head := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, names.OutputVersion, kind)
			return append(head, body[1:]...), nil
		}
	}
	return nil, fmt.Errorf("%T has no kind", content)
}
