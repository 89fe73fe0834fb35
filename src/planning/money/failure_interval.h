// SPDX-License-Identifier: Apache-2.0
/*
 * The interval between checkpoints, and the time that is lost with it. These formulas exist only
 * here: the planner and the running trainer (checkpoint.every_steps: auto) both use them. Pure.
 *
 * Failures are a Poisson process with mean time M between them. A checkpoint stops training for C
 * seconds; R seconds pass from a failure to the first new step; T seconds of training lie between
 * two checkpoints.
 *
 *   Young 1974   T = sqrt(2 C M)
 *   Daly 2006    T = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C  for C < 2M, else M
 *                (second order)
 *   exact        (T / M - 1) exp(T / M - 1) = -exp(-C / M - 1)
 *                (the minimum of w below; it does not depend on R)
 *
 *   lost, first order   C / T + (T / 2 + R) / M
 *                       (valid up to about 20 %; beyond that it exceeds 1)
 *   lost, exact         1 - 1 / w,  w = M / T exp(R / M) (exp((T + C) / M) - 1)
 *                       (Daly 2006, equation 20, restart included)
 *
 * Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974; J.
 * T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22,
 * 2006.
 */
#ifndef LS_PLANNING_MONEY_FAILURE_INTERVAL_H
#define LS_PLANNING_MONEY_FAILURE_INTERVAL_H

#define LS_INTERVAL_FIRST_ORDER_LOSS 0.2 /* Up to this loss the first-order form is used. */

/* The optimal interval, in seconds; cost_s > 0, mtbf_s > 0. */
double ls_interval_young_s(double cost_s, double mtbf_s);
double ls_interval_daly_s(double cost_s, double mtbf_s);
/* Daly's interval; mtbf_s where a checkpoint costs 2 mtbf_s or more. */
double ls_interval_exact_s(double cost_s, double mtbf_s);

/* The shares of time that are lost; interval_s > 0. */
double ls_interval_lost_first(double interval_s, double cost_s, double mtbf_s, double restart_s);
double ls_interval_lost_exact(double interval_s, double cost_s, double mtbf_s, double restart_s);
/* The first-order loss while it is at most LS_INTERVAL_FIRST_ORDER_LOSS, else the exact one:
 * 0..1. */
double ls_interval_lost(double interval_s, double cost_s, double mtbf_s, double restart_s);

#endif
