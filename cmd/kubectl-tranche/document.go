package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/picture"
)

// outputVersion is the version of what -o json and -o yaml print. With the same version, fields and kinds
// may be added, and never change their meaning.
const outputVersion = "cli.tranche.dev/v1beta1"

// The kinds of what -o json and -o yaml print.
const (
	kindCluster           = "Cluster"
	kindClusterSummary    = "ClusterSummary"
	kindProfileList       = "ProfileList"
	kindNodeProfile       = "NodeProfile"
	kindSwitchHistory     = "SwitchHistory"
	kindRollout           = "Rollout"
	kindPlanForecast      = "PlanForecast"
	kindExplanationList   = "ExplanationList"
	kindPodExplanation    = "PodExplanation"
	kindObjectExplanation = "ObjectExplanation"
	kindNodeUsageList     = "NodeUsageList"
	kindPodUsageList      = "PodUsageList"
	kindDefragPlanList    = "DefragmentationPlanList"
	kindVersion           = "Version"
	kindUninstallCheck    = "UninstallCheck"
)

// forPrograms reports whether the user asks for JSON or YAML.
func (s *session) forPrograms() bool { return s.output == "json" || s.output == "yaml" }

// write writes a document as JSON or YAML.
func (s *session) write(document any) error {
	if s.output == "yaml" {
		return picture.WriteYAML(s.out, document)
	}
	return picture.WriteJSON(s.out, document)
}

// documentOf returns a content as JSON with its version and kind. A list becomes the items.
func documentOf(kind string, content any) (json.RawMessage, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(content); err != nil {
		return nil, fmt.Errorf("write %s as JSON: %w", kind, err)
	}
	body := bytes.TrimSpace(text.Bytes())
	switch {
	case string(body) == "null":
		body = []byte(`{"items":[]}`)
	case body[0] == '[':
		body = fmt.Appendf(nil, `{"items":%s}`, body)
	}
	head := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q`, outputVersion, kind)
	if len(body) > len("{}") {
		head = append(head, ',')
	}
	return append(head, body[1:]...), nil
}
