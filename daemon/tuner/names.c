/* SPDX-License-Identifier: Apache-2.0 */
/* Names of values, for texts, protocol and database. */
#include "tuner/tuner.h"

const char *tuner_rule_name(enum tuner_rule rule)
{
	switch (rule) {
	case TUNER_RULE_MODEL: return "model";
	case TUNER_RULE_STALL: return "stall";
	case TUNER_RULE_GIVE_BACK: return "give-back";
	case TUNER_RULE_UNDO: return "undo";
	case TUNER_RULE_PRESSURE: return "pressure";
	case TUNER_RULE_RECOVER: return "recover";
	case TUNER_RULE_SHARE: return "share";
	case TUNER_RULE_LIMIT: return "limit";
	case TUNER_RULE_PIN: return "pin";
	case TUNER_RULE_IDLE: return "idle";
	}
	return "?";
}

const char *tuner_outcome_name(enum tuner_outcome outcome)
{
	switch (outcome) {
	case TUNER_VERIFIED: return "verified";
	case TUNER_UNDONE: return "undone";
	case TUNER_UNCLEAR: return "unclear";
	case TUNER_NOT_APPLIED: return "not-applied";
	}
	return "?";
}

const char *tuner_phase_name(enum tuner_phase phase)
{
	switch (phase) {
	case TUNER_PHASE_NEW: return "new";
	case TUNER_PHASE_JUMPING: return "jumping";
	case TUNER_PHASE_SETTLED: return "settled";
	case TUNER_PHASE_IDLE: return "idle";
	case TUNER_PHASE_BLIND: return "blind";
	}
	return "?";
}
