package main

import (
	"bytes"
	"encoding/json"
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
