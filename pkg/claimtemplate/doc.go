// Package claimtemplate parses names of ResourceClaimTemplates that encode what they request, such as
// tranche-fraction-500 and tranche-memory-2000mi. An admission policy cannot create objects, but it can
// write such a name into a pod, from which the controller creates the template.
//
// name.go parses names, spec.go returns the spec of a template, and projects.go has the keys by which
// pods of other projects request GPUs. The chart's admission policies write the names
// (templates/_translate.tpl).
package claimtemplate
