module functions
    implicit none
contains
    !> For an option that is refused.
    subroutine unused() bind(c)
    end subroutine
end module

!> What the module of Fortran refuses itself, and arrays of all kinds and ranks that it takes.
program errors
    use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
    use, intrinsic :: iso_c_binding, only: c_funloc, c_null_funptr
    use functions, only: unused
    use sparsebatch
    implicit none
    integer, parameter :: n = 2, entries = 4, nitems = 3
    integer(int32), parameter :: row_ptr(n + 1) = [1, 3, 5], col_idx(entries) = [1, 2, 1, 2]
    real(real64), target, save :: double(entries, nitems), double_b(n, nitems), double_x(n, nitems)
    real(real32), target, save :: single(entries, nitems), single_b(n, nitems), single_x(n, nitems)
    real(real64), target, save :: flat(entries * nitems)
    real(real64) :: dt(1) = 0.5_real64
    type(sb_context) :: context
    type(sb_batch) :: batch, single_batch, ragged, none
    type(sb_solver) :: solver, single_solver
    type(sb_options) :: options
    character(len=200) :: errmsg
    integer(int64) :: failed
    integer :: stat, statuses(nitems)

    double = spread([4.0_real64, 1.0_real64, 1.0_real64, 3.0_real64], 2, nitems)
    double_b = spread([5.0_real64, 4.0_real64], 2, nitems)
    single = real(double, real32)
    single_b = real(double_b, real32)
    flat = reshape(double, [size(flat)])

    call context%create(threads=-1, stat=stat, errmsg=errmsg)
    call refused('threads is -1')
    call context%create(threads=1)
    call batch%uniform(context, nitems, row_ptr, col_idx)
    call single_batch%uniform(context, nitems, row_ptr, col_idx, kind=real32)
    call none%uniform(context, nitems, row_ptr, col_idx, kind=3, stat=stat, errmsg=errmsg)
    call refused('dtype is -1')
    call ragged%ragged(context, [2_int64], [4_int64], row_ptr, col_idx(:3), stat=stat, &
        errmsg=errmsg)
    call refused('not as long as nrows says')

    options%release = c_funloc(unused)
    call solver%create(batch, double, options, stat=stat, errmsg=errmsg)
    call refused('allocate is NULL')
    options%release = c_null_funptr
    options%maxiter = -7
    call solver%create(batch, double, options, stat=stat, errmsg=errmsg)
    call refused('maxiter is -7')
    call solver%create(batch, single, stat=stat, errmsg=errmsg)
    call refused('arrays are real32, expected real64')
    call solver%create(batch, single(:, 1), stat=stat, errmsg=errmsg)
    call refused('arrays are real32, expected real64')
    call single_solver%create(single_batch, double, stat=stat, errmsg=errmsg)
    call refused('arrays are real64, expected real32')
    call solver%solve(double_b, double_x, stat=stat, errmsg=errmsg)
    if (stat /= SB_ERROR_BAD_HANDLE) error stop 'a solver that was not created'

    call solver%create(batch, double)
    call single_solver%create(single_batch, single)
    call solver%set_values(single, stat=stat, errmsg=errmsg)
    call refused('arrays are real32, expected real64')
    call single_solver%set_values(double(:, 1), stat=stat, errmsg=errmsg)
    call refused('arrays are real64, expected real32')
    call solver%solve(single_b, single_x, stat=stat, errmsg=errmsg)
    call refused('arrays are real32, expected real64')
    call single_solver%solve(double_b(:, 1), double_x(:, 1), stat=stat, errmsg=errmsg)
    call refused('arrays are real64, expected real32')
    call single_solver%shift(double, dt, stat=stat, errmsg=errmsg)
    call refused('arrays are real64, expected real32')

    call solver%solve(double_b, double_x, nfailed=failed)
    if (failed /= 0 .or. any(abs(double_x - 1) > 1e-8)) error stop 'the solution in double'
    call single_solver%solve(single_b, single_x, nfailed=failed)
    if (failed /= 0 .or. any(abs(single_x - 1) > 1e-3)) error stop 'the solution in single'
    call solver%set_values(flat)
    call solver%solve(double_b, double_x)
    if (any(abs(double_x - 1) > 1e-8)) error stop 'the solution with flat values'
    call solver%set_limits(maxiter=-1, stat=stat, errmsg=errmsg)
    call refused('maxiter is -1')
    call solver%set_limits(rtol=-2.0_real64, stat=stat, errmsg=errmsg)
    call refused('rtol is -2')
    call solver%set_limits(rtol=1e-8_real64, atol=1e6_real64, maxiter=5)
    call solver%solve(double_b, double_x)
    if (any(abs(double_x) > 0)) error stop 'a tolerance that zero meets'
    call solver%set_limits(atol=0.0_real64)
    double_x = 7
    call solver%solve(double_b, double_x, guess=SB_GUESS_IN_X, nfailed=failed, &
        active=[.true., .false., .true.])
    if (failed /= 0 .or. any(abs(double_x(:, 2) - 7) > 0)) error stop 'a system left out'
    if (any(abs(double_x(:, 1:3:2) - 1) > 1e-6)) error stop 'active systems'
    call solver%outcomes(statuses)
    if (any(statuses /= [0, SB_INACTIVE, 0])) error stop 'the status of a system left out'
    if (sb_outcome_name(SB_INACTIVE) /= 'Inactive') error stop 'the name of that status'
    call solver%solve(double_b, double_x, active=[.true.], stat=stat, errmsg=errmsg)
    call refused('active has 1 entries, expected 3')
    call solver%shift(-double, dt)
    call solver%solve(double_b + 2, double_x)
    if (any(abs(double_x - 1) > 1e-8)) error stop 'the solution after a shift'
    print '(a)', 'errors in Fortran: all passed'

contains

    !> The last call was refused with this text in its message.
    subroutine refused(text)
        character(len=*), intent(in) :: text
        if (stat == SB_ERROR_ARGUMENT .and. index(errmsg, text) > 0) return
        print '(a, i0, 4a)', 'stat ', stat, ', expected "', text, '" in: ', trim(errmsg)
        error stop 1
    end subroutine
end program
